"""A client that was cut off from an answer gets the rest by the number of its last event."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.relay import Relay
from woolly.cli.chat.remote import Server
from woolly.errors import DownloadError
from woolly.request import End, Text

CHAT = "/v1/chat/completions"
BODY = {"messages": HELLO, "max_tokens": 30, "stream": True, "temperature": 1.0}


def events(data: bytes) -> list[tuple[int, Any]]:
    """The numbers and data of all events; without a number it is 0."""
    pairs = re.findall(rb"(?:id: (\d+)\n)?data: (\{.*\})\n", data)
    return [(int(number or 0), json.loads(text) | {"created": 0}) for number, text in pairs]


def test_events_have_numbers_for_who_asks_for_them_and_the_seed_is_told_first(live: Live) -> None:
    status, headers, data = live.ask("POST", CHAT, BODY, {"last-event-id": "0"})
    numbered = events(data)
    assert (status, [number for number, _ in numbered]) == (200, list(range(1, len(numbered) + 1)))
    assert len(numbered) > 20
    assert int(headers["x-woolly-seed"]) >= 0
    assert b"id:" not in live.ask("POST", CHAT, BODY)[2]


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/v1/completions"])
def test_the_rest_of_an_answer_is_what_it_was_from_any_event_on(live: Live, path: str) -> None:
    body: dict[str, Any] = dict(BODY)
    if path == "/v1/responses":
        body = {"input": "Hello", "max_output_tokens": 30, "stream": True, "temperature": 1.0, "store": False}
    elif path == "/v1/completions":
        body = {"prompt": "Hello", "max_tokens": 30, "stream": True, "temperature": 1.0}
    _, headers, data = live.ask("POST", path, body, {"last-event-id": "0"})
    complete = events(data)
    again = {name: headers[name] for name in ("x-woolly-seed", "x-request-id")}
    for seen in (1, 7, len(complete) - 1):
        rest = events(live.ask("POST", path, body, {"last-event-id": str(seen), **again})[2])
        assert _timeless(rest) == _timeless(complete[seen:])


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _timeless(each)
            for name, each in value.items()
            if not re.search("_at$|id$|cache|input_tokens|timings", name)
        }
    return [_timeless(each) for each in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("more", [{"n": 2}, {"stream": False}])
def test_what_cannot_be_gone_on_with_is_refused(live: Live, more: dict[str, Any]) -> None:
    status, _, answer = live.ask("POST", CHAT, BODY | more, {"last-event-id": "3"})
    assert (status, answer["error"]["param"]) == (400, "Last-Event-ID")
    assert live.ask("POST", CHAT, BODY | more, {"last-event-id": "0"})[0] == 200


@pytest.mark.parametrize("header", ["last-event-id", "x-woolly-seed"])
@pytest.mark.parametrize("value", ["", "x", "-1", "1e3", "9" * 30, "\u0663".encode().decode("latin-1")])
def test_a_header_that_is_no_number_is_refused_by_its_name(live: Live, header: str, value: str) -> None:
    status, _, answer = live.ask("POST", CHAT, BODY, {header: value})
    assert (status, answer["error"]["param"]) == (400, header)


def test_woolly_chat_goes_on_reading_when_its_connection_breaks(start: Start) -> None:
    live = start(step_s=0.002)
    options = {"max_tokens": 60, "seed": 5}
    plain = list(Server(f"http://127.0.0.1:{live.port}").model("beta").chat_stream(HELLO, **options))
    relay = Relay(live.port, 3000, 2000, 1)
    cut = list(Server(f"http://127.0.0.1:{relay.port}").model("beta").chat_stream(HELLO, **options))
    assert [event.text for event in cut if isinstance(event, Text)] == [
        event.text for event in plain if isinstance(event, Text)
    ]
    assert relay.asked == 4
    ends = [event for event in (plain[-1], cut[-1]) if isinstance(event, End)]
    assert ends[0].usage.completion_tokens == ends[1].usage.completion_tokens == 60
    relay.close()


def test_a_server_that_stays_away_is_told_after_a_while(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.cli.chat.remote.RECONNECT_S", 0.4)
    live = start(step_s=0.002)
    relay = Relay(live.port, 3000)
    stream = Server(f"http://127.0.0.1:{relay.port}").model("beta").chat_stream(HELLO, max_tokens=60)
    relay.close()
    with pytest.raises(DownloadError, match="broke off in the middle"):
        list(stream)
