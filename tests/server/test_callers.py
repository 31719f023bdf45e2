"""Who asks: the key, the token that stands for one, or the address; nothing else that a client sends has a say."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import http.client
import ipaddress
import json
import time
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.server.batch.uploads import BOUNDARY, form
from tests.server.conftest import Live, Start
from tests.server.stand_in import until
from woolly.errors import RequestError, WoollyError
from woolly.server.http.addresses import client_address, neighbours_of
from woolly.server.http.rate import Rate
from woolly.server.http.tokens import GUESSES, Tokens
from woolly.server.settings import read_settings

KEY = "a-key-of-thirty-two-characters-x"
DIGEST = hashlib.sha256(KEY.encode()).digest()
NAME = f"key-{DIGEST.hex()[:12]}"
MINE = {"X-API-Key": KEY}
SESSIONS, TOKEN = "/api/v1/sessions", "/api/v1/auth/token"
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
            socket.recv(timeout=60)  # the welcome
            socket.send(json.dumps(message | {"config": {"max_tokens": 1}}))
            return json.loads(socket.recv(timeout=60))

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


def test_s28_without_keys_a_token_makes_nobody_another_caller(start: Start) -> None:
    live = start(anonymous_rpm=1, burst=20)
    session = live.ask("POST", SESSIONS, {})[2]["session_id"]
    tokens = [live.ask("POST", TOKEN, {"user_id": name})[2]["token"] for name in ("alice", NAME, "127.0.0.1", "")]
    for token in tokens:
        headers = {"Authorization": f"Bearer {token}"}
        assert session_ids(live, headers) == [session]
        assert ask_from(live, "127.0.0.7", "GET", SESSIONS, headers=headers) == (200, [])
    answers = [live.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {tokens[0]}"})[0] for _ in range(20)]
    assert answers[0] == 200 and answers[-1] == 429


def test_s28_a_token_of_a_key_that_is_gone_is_nobodys_where_there_are_no_keys_any_more(start: Start) -> None:
    secret = b"a-secret-of-twenty-characters"
    token = start(keys=(DIGEST,), token_secret=secret).ask("POST", TOKEN, {"user_id": "me", "api_key": KEY})[2]["token"]
    live = start(token_secret=secret)
    session = live.ask("POST", SESSIONS, {}, {"Authorization": f"Bearer {token}"})[2]["session_info"]
    assert session["user_id"] == "127.0.0.1"
    assert not live.ask("POST", "/api/v1/auth/validate", {"token": token})[2]["valid"]


def test_s34_a_key_that_is_taken_from_a_running_server_takes_its_tokens_along(start: Start) -> None:
    other = "another-key-of-thirty-two-signs-x"
    live = start(keys=(DIGEST,), anonymous=False)
    fresh = dataclasses.replace(live.app.settings, keys=(hashlib.sha256(other.encode()).digest(),))

    def exchange(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {live.ask('POST', TOKEN, {'user_id': 'me', 'api_key': key})[2]['token']}"}

    token = exchange(KEY)
    assert live.ask("GET", "/v1/models", headers=token)[0] == 200
    with connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None, additional_headers=token) as socket:
        socket.recv(timeout=60)  # the welcome
        live.background.run(live.app.renew(lambda: fresh))
        socket.send(json.dumps({"type": "generate", "id": 1, "prompt": "x", "config": {"max_tokens": 1}}))
        assert json.loads(socket.recv(timeout=60))["error"]["code"] == 401
    assert live.ask("GET", "/v1/models", headers=token)[0] == 401
    assert live.ask("GET", "/v1/models", headers=exchange(other))[0] == 200


def test_s28_a_websocket_may_ask_for_as_long_as_its_token_is_valid(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = start(keys=(DIGEST,), anonymous=False)
    token = live.ask("POST", TOKEN, {"user_id": "me", "api_key": KEY})[2]["token"]
    message = json.dumps({"type": "generate", "id": 1, "prompt": "x", "config": {"max_tokens": 1}})
    with connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None, subprotocols=[f"bearer.{token}"]) as socket:
        socket.recv(timeout=60)  # the welcome
        socket.send(message)
        while json.loads(socket.recv(timeout=60))["type"] != "complete":
            pass
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 7200)
        socket.send(message)
        assert json.loads(socket.recv(timeout=60))["error"]["code"] == 401


@pytest.mark.parametrize("text", [NAME, NAME.upper(), DIGEST.hex(), KEY[:-1], f"{KEY}x", "user-me", "127.0.0.1"])
def test_s28_what_names_a_key_is_no_key(start: Start, text: str) -> None:
    live = start(keys=(DIGEST,), anonymous=False)
    assert live.ask("POST", TOKEN, {"user_id": "me", "api_key": text})[0] == 401
    for headers in ({"X-API-Key": text}, {"Authorization": f"Bearer {text}"}):
        assert live.ask("GET", "/v1/models", headers=headers)[0] == 401


def test_s28_a_token_is_good_as_it_was_signed_and_in_no_other_form(start: Start) -> None:
    live = start(keys=(DIGEST,), anonymous=False)
    claims = {"sub": "me", "iat": 0, "exp": 2**40, "iss": "woolly-server", "aud": "woolly-api", "api_key_id": NAME}

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()

    def signed(head: Any, secret: bytes) -> str:
        body = f"{part(head)}.{part(claims)}"
        code = base64.urlsafe_b64encode(hmac.new(secret, body.encode(), hashlib.sha256).digest()).rstrip(b"=")
        return f"{body}.{code.decode()}"

    right = {"alg": "HS256", "typ": "JWT"}
    forged = [f"{part(head)}.{part(claims)}.{end}" for head in (right, {"alg": "none"}) for end in ("", "AA", "none")]
    forged += [signed(right, secret) for secret in (b"", b"\0", DIGEST, KEY.encode(), NAME.encode(), b"secret")]
    for token in forged:
        assert live.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {token}"})[0] == 401
        assert not live.ask("POST", "/api/v1/auth/validate", {"token": token})[2]["valid"]


def test_s28_an_address_that_guesses_keys_is_not_heard_for_a_while(start: Start) -> None:
    live = start(keys=(DIGEST,), anonymous=False)
    live.app.guard.tokens._guesses = Rate(GUESSES, GUESSES, clock=lambda: 0.0)
    right = {"user_id": "me", "api_key": KEY}
    for _ in range(2 * GUESSES):  # right keys are no guesses
        assert live.ask("POST", TOKEN, right)[0] == 200
    codes = [live.ask("POST", TOKEN, right | {"api_key": f"guess {number}"})[0] for number in range(300)]
    assert codes == [401] * GUESSES + [429] * (300 - GUESSES)
    code, headers, _ = live.ask("POST", TOKEN, right)
    assert (code, headers["retry-after"]) == (429, "6")  # or the right guess could be told from the wrong ones
    assert ask_from(live, "127.0.0.8", "POST", TOKEN, right)[0] == 429
    assert live.ask("GET", "/v1/models", headers=MINE)[0] == 200  # whoever sends the key itself does not wait


def test_s28_guesses_are_counted_by_address_and_forgotten_with_time() -> None:
    now = 0.0
    tokens = Tokens((DIGEST,))
    tokens._guesses = Rate(GUESSES, GUESSES, clock=lambda: now)

    def guess(address: str, key: str = "wrong") -> str:
        try:
            return tokens.exchange(key, "me", address) and "a token"
        except WoollyError as error:
            return error.code

    wrong, often = "authentication_failed", "rate_limit_exceeded"
    assert [guess("192.0.2.1") for _ in range(GUESSES + 1)] == [wrong] * GUESSES + [often]
    assert (guess("192.0.2.1", KEY), guess("192.0.2.2", KEY)) == (often, "a token")
    now = 60.0 / GUESSES
    assert (guess("192.0.2.1", KEY), guess("192.0.2.1"), guess("192.0.2.1", KEY)) == ("a token", wrong, often)


def test_s27_answers_that_are_kept_are_the_callers_own_without_a_key_too(live: Live) -> None:
    path, body = "/v1/responses", {"input": "x", "max_output_tokens": 2}
    mine = live.ask("POST", path, body)[2]["id"]
    assert live.ask("GET", f"{path}/{mine}")[0] == 200
    for method, where, fields in (
        ("GET", f"{path}/{mine}", None),
        ("GET", f"{path}/{mine}/input_items", None),
        ("DELETE", f"{path}/{mine}", None),
        ("POST", path, body | {"previous_response_id": mine}),
    ):
        assert ask_from(live, "127.0.0.5", method, where, fields)[0] in (400, 404), (method, where)
    assert live.ask("POST", path, body | {"previous_response_id": mine})[0] == 200


def upload_from(live: Live, source: str, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and id of a file with one row for a batch."""
    row = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 1}}
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=60, source_address=(source, 0))
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection.request("POST", "/v1/files", form(json.dumps(row).encode(), purpose="batch"), kind | (headers or {}))
    answer = connection.getresponse()
    record = json.loads(answer.read())
    connection.close()
    return answer.status, record.get("id")


def test_s27_callers_without_a_key_have_a_limited_number_of_files_and_batches_together(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("woolly.server.batch.files.WITHOUT_KEY", 6)
    monkeypatch.setattr("woolly.server.batch.jobs.WITHOUT_KEY", 2)
    live = start(keys=(DIGEST,), anonymous=True, limits={"batches_per_key": 1})

    def begin(source: str, file: str, headers: dict[str, str] | None = None) -> int:
        body = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"}
        return ask_from(live, source, "POST", "/v1/batches", body, headers)[0]

    sources = [f"127.0.0.{number}" for number in (2, 3, 4)]
    files = [upload_from(live, source)[1] for source in sources]
    assert [begin(source, file) for source, file in zip(sources, files, strict=True)] == [200, 200, 429]
    batches = live.app.batches._records.known
    assert until(lambda: all(batch.status == "completed" for batch in batches))
    assert begin(sources[0], files[0]) == 200  # in the place of its own
    assert until(lambda: all(batch.status == "completed" for batch in batches))
    assert upload_from(live, "127.0.0.5")[0] == 413  # three were uploaded, and three were answered
    status, mine = upload_from(live, "127.0.0.2", MINE)
    assert status == 200 and begin("127.0.0.2", mine, MINE) == 200  # a key has its own room


def test_s28_a_session_ends_for_no_other_callers_session(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.server.sessions.sessions.WITHOUT_KEY", 4)
    live = start(keys=(DIGEST,), anonymous=True, max_sessions=2)
    mine = live.ask("POST", SESSIONS, {}, MINE)[2]["session_id"]
    first = [ask_from(live, f"127.0.0.{number}", "POST", SESSIONS, {})[0] for number in (2, 2, 3, 3)]
    assert first == [200] * 4
    code, answer = ask_from(live, "127.0.0.4", "POST", SESSIONS, {})
    assert (code, answer["error"]["type"]) == (503, "overloaded")
    assert [len(ask_from(live, f"127.0.0.{number}", "GET", SESSIONS)[1]) for number in (2, 3, 4)] == [2, 2, 0]
    assert ask_from(live, "127.0.0.2", "POST", SESSIONS, {})[0] == 200  # in the place of its own
    assert session_ids(live, MINE) == [mine]
    assert [live.ask("POST", SESSIONS, {}, MINE)[0] for _ in range(2)] == [200, 200]  # a key has its own room
