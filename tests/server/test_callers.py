"""Who asks: the key, the token that stands for one, or the address; nothing else that a client sends has a say."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import json
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.server.conftest import Live, Start
from woolly.errors import RequestError
from woolly.server.http.addresses import client_address, neighbours_of
from woolly.server.settings import read_settings

KEY = "a-key-of-thirty-two-characters-x"
DIGEST = hashlib.sha256(KEY.encode()).digest()
NAME = f"key-{DIGEST.hex()[:12]}"
MINE = {"X-API-Key": KEY}
SESSIONS = "/api/v1/sessions"
CLAIMS = (  # headers by which proxies tell who asks, and others that a client might try
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Forwarded-User",
    "X-Remote-User",
    "X-User-Id",
    "X-Woolly-Key",
    "Forwarded",
    "From",
)


def ask_from(
    live: Live, source: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Status and answer of a request from another address of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60, source_address=(source, 0))
    connection.request(method, path, None if body is None else json.dumps(body), headers or {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text)


def session_ids(live: Live, headers: dict[str, str] | None = None) -> list[str]:
    return [row["id"] for row in live.ask("GET", SESSIONS, headers=headers)[2]]


@pytest.mark.parametrize("name", CLAIMS)
def test_s27_no_header_makes_a_caller_another_one(start: Start, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    live = start(keys=(DIGEST,), anonymous=True)
    keyed = live.ask("POST", SESSIONS, {}, MINE)[2]["session_info"]
    assert keyed["user_id"] == NAME
    for value in (NAME, f"for={NAME}", f"127.0.0.2, {NAME}", f"{NAME}, 127.0.0.2", KEY, "127.0.0.2", "::1"):
        own = live.ask("POST", SESSIONS, {}, {name: value})[2]["session_info"]
        assert own["user_id"] == "127.0.0.1"
        assert keyed["id"] not in session_ids(live, {name: value})
        assert live.ask("GET", f"{SESSIONS}/{keyed['id']}", headers={name: value})[0] == 404


def test_s27_no_header_of_a_handshake_makes_a_websocket_another_caller(start: Start) -> None:
    live = start(keys=(DIGEST,), anonymous=True)
    session = live.ask("POST", SESSIONS, {}, MINE)[2]["session_id"]
    message = {"type": "chat", "id": 1, "session_id": session, "messages": [{"role": "user", "content": "x"}]}

    def answer(**more: Any) -> Any:
        with connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None, **more) as socket:
            socket.recv(timeout=10)  # the welcome
            socket.send(json.dumps(message | {"config": {"max_tokens": 1}}))
            return json.loads(socket.recv(timeout=10))

    for name in CLAIMS:
        assert answer(additional_headers={name: NAME})["error"]["code"] == 404, name
    for word in (NAME, f"bearer.{NAME}", "bearer."):
        assert answer(subprotocols=[word])["error"]["code"] == 404, word
    assert answer(subprotocols=[f"bearer.{KEY}"])["type"] == "token"


def test_s27_a_rate_limit_is_not_escaped_by_headers_or_by_other_addresses_of_this_machine(start: Start) -> None:
    live = start(anonymous_rpm=1, burst=3)
    for number in range(3):
        headers = dict.fromkeys(CLAIMS, f"10.0.0.{number}")
        assert ask_from(live, f"127.0.0.{number + 1}", "GET", "/v1/models", headers=headers)[0] == 200
    assert ask_from(live, "127.0.0.9", "GET", "/v1/models", headers={"X-Forwarded-For": "10.0.0.9"})[0] == 429


def test_a_limit_counts_a_subnet_of_ipv6_as_one() -> None:
    assert neighbours_of("2001:db8::1") == neighbours_of("2001:db8::ffff:2") != neighbours_of("2001:db8:0:1::1")
    assert neighbours_of("192.0.2.1") == neighbours_of("::ffff:192.0.2.1") != neighbours_of("192.0.2.2")
    assert neighbours_of("::1") == neighbours_of("127.9.9.9")


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ((), "127.0.0.1"),
        (("192.0.2.7",), "192.0.2.7"),
        (("2001:db8::7",), "2001:db8::7"),
        ((" 192.0.2.7\t",), "192.0.2.7"),
        (("192.0.2.1, 192.0.2.7",), "192.0.2.7"),  # the first is what the client itself has sent
        (("192.0.2.1", "192.0.2.7"), "192.0.2.7"),
        (("192.0.2.7, 10.0.0.5",), "192.0.2.7"),  # through two proxies
        (("192.0.2.1, 192.0.2.7, 10.0.0.5, 10.9.9.9",), "192.0.2.7"),
        (("10.0.0.5",), "10.0.0.5"),
        ((NAME,), "127.0.0.1"),
        ((f"{NAME}, 10.0.0.5",), "10.0.0.5"),
        (("192.0.2.1, unknown",), "127.0.0.1"),
        (("",), "127.0.0.1"),
        ((",",), "127.0.0.1"),
        (("192.0.2.1, ",), "127.0.0.1"),
        (("::ffff:192.0.2.7",), "192.0.2.7"),
        (("1.2.3",), "127.0.0.1"),
        (("192.0.2.7:80",), "127.0.0.1"),
        (("\xff\x00",), "127.0.0.1"),
    ],
)
def test_s27_a_proxy_that_the_operator_named_tells_the_address_before_it(
    forwarded: tuple[str, ...], client: str
) -> None:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    proxies = tuple(map(ipaddress.ip_network, ("127.0.0.1", "10.0.0.0/8")))
    assert client_address("127.0.0.1", headers, proxies) == client
    assert client_address("::ffff:127.0.0.1", headers, proxies).removeprefix("::ffff:") == client
    for peer in ("192.0.2.99", "::1", ""):
        assert client_address(peer, headers, proxies) == peer  # a client that is no proxy is never believed
    assert client_address("127.0.0.1", headers, ()) == "127.0.0.1"


def test_behind_a_proxy_that_is_named_each_client_is_itself(start: Start) -> None:
    live = start(proxies=("127.0.0.1",))
    one, other = {"X-Forwarded-For": "192.0.2.1"}, {"X-Forwarded-For": "192.0.2.2"}
    session = live.ask("POST", SESSIONS, {}, one)[2]["session_info"]
    assert session["user_id"] == "192.0.2.1"
    assert (session_ids(live, one), session_ids(live, other), session_ids(live)) == ([session["id"]], [], [])


@pytest.mark.parametrize("value", ["nginx", "10.0.0.5/8", "10.0.0.0/33", "*", "127.0.0.1:80"])
def test_a_proxy_that_is_no_address_is_refused_at_the_start(value: str) -> None:
    with pytest.raises(RequestError, match=r"TRUSTED_PROXIES is '.*'; expected addresses or networks"):
        read_settings({}, {"WOOLLY_SERVER__TRUSTED_PROXIES": value})
    assert read_settings({}, {"WOOLLY_SERVER__TRUSTED_PROXIES": "10.0.0.1, ::1, fd00::/8"}).proxies[1:] == (
        "::1",
        "fd00::/8",
    )
