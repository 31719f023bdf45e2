"""WebSockets: several requests over one connection, the same text as the routes, the same guard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.server.conftest import Live, Start
from tests.server.stand_in import until
from woolly.server.socket import PATHS

KEY = "a-key-of-thirty-two-characters-x"
CONFIG = {"max_tokens": 6, "temperature": 0}


@contextmanager
def talk(live: Live, path: str = "/ws", **more: Any) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{live.port}{path}", proxy=None, **more) as socket:
        assert json.loads(socket.recv(timeout=10))["type"] == "welcome"
        yield socket


def say(socket: ClientConnection, message: Any) -> None:
    socket.send(message if isinstance(message, str | bytes) else json.dumps(message))


def heard(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=10))


def until_end(socket: ClientConnection) -> list[Any]:
    rows = [heard(socket)]
    while rows[-1]["type"] not in ("complete", "error", "GenerationComplete", "Error"):
        rows.append(heard(socket))
    return rows


def completed(live: Live, prompt: str) -> str:
    body = live.ask("POST", "/api/v1/inference/complete", {"prompt": prompt, **CONFIG})[2]
    return str(body["choices"][0]["text"])


@pytest.mark.parametrize("path", PATHS)
def test_each_path_gives_the_text_of_the_route(live: Live, path: str) -> None:
    with talk(live, path) as socket:
        say(socket, {"type": "generate", "id": "a", "prompt": "Hi", "config": CONFIG})
        *tokens, end = until_end(socket)
    assert "".join(row["token"] for row in tokens) == end["text"] == completed(live, "Hi")
    assert [row["index"] for row in tokens] == list(range(len(tokens)))
    assert (end["tokens_generated"], end["finish_reason"], end["request_id"]) == (6, "length", "a")


def test_requests_of_one_connection_are_told_apart_and_an_id_in_use_is_refused(start: Start) -> None:
    live = start(step_s=0.01)
    with talk(live) as socket:
        for id_ in (1, "1"):
            say(socket, {"type": "generate", "id": id_, "prompt": f"Hi {id_!r}", "config": CONFIG})
        say(socket, {"type": "generate", "id": 1, "prompt": "again", "config": CONFIG})
        ends, refused = {}, []
        while len(ends) < 2:
            row = heard(socket)
            if row["type"] == "complete":
                ends[row["request_id"]] = row["text"]
            elif row["type"] == "error":
                refused.append(row["error"]["code"])
    assert ends == {id_: completed(live, f"Hi {id_!r}") for id_ in (1, "1")}
    assert refused == [409]


def test_a_cancelled_request_ends_with_what_it_has_and_the_connection_goes_on(start: Start) -> None:
    live = start(step_s=0.02)
    with talk(live) as socket:
        say(socket, {"type": "generate", "id": "long", "prompt": "Hi", "config": {"max_tokens": 2000}})
        heard(socket)
        say(socket, {"type": "cancel", "id": "long"})
        end = until_end(socket)[-1]
        assert (end["type"], end["finish_reason"], end["request_id"]) == ("complete", "cancelled", "long")
        assert until(lambda: live.shelf.made[0].idle)
        say(socket, {"type": "cancel", "id": "long"})
        assert heard(socket)["error"]["code"] == 400
        say(socket, {"type": "chat", "id": "next", "messages": [{"role": "user", "content": "Hi"}], "config": CONFIG})
        assert until_end(socket)[-1]["tokens_generated"] == 6


@pytest.mark.parametrize("politely", [True, False])
def test_whoever_goes_away_takes_its_requests_along(start: Start, politely: bool) -> None:
    live = start(step_s=0.02)
    with talk(live) as socket:
        say(socket, {"type": "generate", "id": "long", "prompt": "Hi", "config": {"max_tokens": 2000}})
        heard(socket)
        if not politely:
            socket.socket.close()
    assert until(lambda: live.shelf.made[0].idle)
    assert until(lambda: not live.app.sockets and live.app.open == 0)


@pytest.mark.parametrize(
    "message",
    [
        "no JSON",
        "[1]",
        "5",
        '{"type": "sing"}',
        '{"hello": 1}',
        '{"type": "generate", "id": 1}',
        '{"type": "chat", "id": 1, "messages": []}',
        '{"type": "generate", "prompt": "x", "config": {"top_k": -1}}',
    ],
)
def test_a_bad_message_is_answered_and_the_connection_stays(live: Live, message: str) -> None:
    with talk(live) as socket:
        say(socket, message)
        row = heard(socket)
        assert (row["type"], row["error"]["code"]) == ("error", 400)
        say(socket, b"\x00\x01")
        assert heard(socket)["code"] == -32600
        say(socket, {"type": "Ping"})
        assert heard(socket) == {"type": "Pong"}


def test_a_frame_that_is_too_large_closes_with_the_code_that_says_so(start: Start) -> None:
    live = start(limits={"max_body_size": 100_000})
    with talk(live) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            say(socket, {"type": "generate", "id": 1, "prompt": "a" * 200_000})
            heard(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_a_page_of_another_site_is_not_let_in(live: Live, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None, additional_headers={"Origin": origin}).close()
    assert refused.value.response.status_code == 403


def test_a_key_comes_as_a_header_or_as_a_protocol(start: Start) -> None:
    live = start(keys=(hashlib.sha256(KEY.encode()).digest(),), anonymous=False)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None).close()
    assert refused.value.response.status_code == 401
    with talk(live, additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
        say(socket, {"type": "Ping"})
        assert heard(socket) == {"type": "Pong"}
    with talk(live, subprotocols=[f"bearer.{KEY}"]) as socket:
        say(socket, {"type": "Ping"})
        assert heard(socket) == {"type": "Pong"}


def test_the_capital_forms_and_the_bare_prompt_are_answered_in_their_own_way(live: Live) -> None:
    with talk(live) as socket:
        say(socket, {"type": "Generate", "prompt": "Hi", "options": CONFIG})
        *tokens, end = until_end(socket)
        assert "".join(row["text"] for row in tokens) == completed(live, "Hi")
        assert (end["type"], end["tokens_generated"]) == ("GenerationComplete", 6)
        say(socket, {"type": "Generate", "prompt": ""})
        assert heard(socket)["type"] == "Error"
        say(socket, {"prompt": "Hi", "stream": True, **CONFIG})
        assert "".join(row["content"] for row in until_end(socket)[:-1]) == completed(live, "Hi")
        say(socket, {"type": "GetStats"})
        assert heard(socket)["connections"] == 1


def test_a_session_goes_on_over_a_socket(live: Live) -> None:
    session = live.ask("POST", "/api/v1/sessions", {})[2]["session_id"]
    with talk(live) as socket:
        message = {"type": "chat", "id": 1, "messages": [{"role": "user", "content": "Hi"}], "session_id": session}
        say(socket, message | {"config": CONFIG})
        until_end(socket)
    assert live.ask("GET", f"/api/v1/sessions/{session}")[2]["message_count"] == 2
