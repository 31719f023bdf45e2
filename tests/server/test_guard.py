"""The guard: names, pages, keys, sizes. After each refusal a good request succeeds."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.raw import Raw, status
from tests.server.stand_in import until
from woolly.errors import RequestError
from woolly.server.dialect_table import DIALECTS
from woolly.server.http.rate import Rate
from woolly.server.settings import read_settings

KEY = "a-key-of-thirty-two-characters-x"
KEYS = (hashlib.sha256(KEY.encode()).digest(),)


def get(live: Live, *lines: str, method: str = "GET", path: str = "/health", body: str = "") -> int:
    text = f"{method} {path} HTTP/1.1\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n" + body
    raw = Raw(live.port).send(text.encode())
    answer = raw.read()
    raw.close()
    return status(answer)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:1", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.", 403),
        ("x" * 300, 403),
        ("", 403),
    ],
)
def test_h39_only_our_own_names_are_answered_to(live: Live, host: str, expected: int) -> None:
    assert get(live, f"Host: {host}") == expected


def test_h39_no_host_and_two_hosts_are_refused(live: Live) -> None:
    assert get(live) == 400
    assert get(live, "Host: localhost", "Host: localhost") == 400


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:5173", True),
        ("http://127.0.0.1", True),
        ("app://ole", True),
        ("tauri://localhost", True),
        ("https://evil.example", False),
        ("null", False),
        ("http://localhost.evil.example", False),
        ("http://evil.example/http://localhost", False),
    ],
)
def test_h40_s17_only_pages_of_this_machine_may_ask(live: Live, origin: str, allowed: bool) -> None:
    code, headers, _ = live.ask("GET", "/v1/models", headers={"Origin": origin})
    assert code == (200 if allowed else 403)
    assert headers.get("access-control-allow-origin") == (origin if allowed else None)
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_h40_no_route_tells_another_page_anything_before_its_body_has_come(live: Live, origin: str) -> None:
    for dialect in DIALECTS:
        for route in dialect.routes:
            path = re.sub(r"\{[^}]*\}", "beta", route.path)
            lines = ("Host: localhost", f"Origin: {origin}", "Content-Length: 1000000")  # announced, but not sent
            assert get(live, *lines, method=route.method, path=path) == 403, path
            assert get(live, *lines[:2], method="OPTIONS", path=path) == 403, path
    assert live.loader.talkers == []


def test_h17_a_page_must_send_json_and_a_program_may_send_anything(live: Live) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        named = {"Content-Type": kind}
        assert live.ask("POST", "/v1/chat/completions", body, named)[0] == 200
        assert live.ask("POST", "/v1/chat/completions", body, named | {"Origin": "http://localhost"})[0] == 415
    absent = ("Host: localhost", f"Content-Length: {len(body)}")
    for origin, expected in (((), 200), (("Origin: http://localhost",), 415), (("Origin: http://evil.example",), 403)):
        text = body.decode() if expected == 200 else ""
        assert get(live, *absent, *origin, method="POST", path="/v1/chat/completions", body=text) == expected


def test_a_preflight_tells_what_a_page_may_send(live: Live) -> None:
    code, headers, _ = live.ask("OPTIONS", "/api/v1/models", headers={"Origin": "http://localhost:5173"})
    assert code == 204
    assert headers["access-control-allow-origin"] == "http://localhost:5173"
    assert "x-ole-client" in headers["access-control-allow-headers"].lower()
    assert "POST" in headers["access-control-allow-methods"]


SDK_HEADERS = {  # what the SDKs of OpenAI and Anthropic send from a browser, in the form in which it asks for them
    "openai": "authorization,content-type,openai-organization,openai-project,openai-beta,user-agent,x-stainless-arch,"
    "x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,"
    "x-stainless-runtime-version,x-stainless-timeout,x-stainless-helper-method,x-stainless-poll-helper",
    "anthropic": "anthropic-beta,anthropic-dangerous-direct-browser-access,anthropic-version,content-type,user-agent,"
    "x-api-key,x-stainless-arch,x-stainless-helper,x-stainless-os,x-stainless-retry-count,x-stainless-timeout",
}


def allowed_headers(live: Live, wanted: str, origin: str = "http://localhost:5173") -> set[str]:
    """The headers that a preflight allows, as a browser compares them."""
    asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    _, headers, _ = live.ask("OPTIONS", "/v1/chat/completions", headers=asked)
    return {name.strip().lower() for name in headers.get("access-control-allow-headers", "").split(",")}


@pytest.mark.parametrize("sdk", SDK_HEADERS)
def test_the_official_sdks_work_in_pages_that_may_ask(live: Live, start: Start, sdk: str) -> None:
    wanted = SDK_HEADERS[sdk]
    assert set(wanted.split(",")) <= allowed_headers(live, wanted)
    assert set(wanted.split(",")) <= allowed_headers(live, wanted.replace(",", " , ").title())
    listed = start(origins=("https://app.example",))
    assert set(wanted.split(",")) <= allowed_headers(listed, wanted, "https://app.example")
    assert allowed_headers(live, wanted, "https://app.example") == {""}


def test_a_preflight_allows_no_header_but_ours_and_those_of_the_sdks(live: Live, start: Start) -> None:
    usual = allowed_headers(live, "")
    for wanted in ("cookie", "x-evil", "stainless-x", "x-openai", "openai-a b", "x-stainless-" + 99 * "a", "openai-é"):
        assert allowed_headers(live, wanted) == usual
    assert allowed_headers(live, ",".join(["x-stainless-os"] * 99)) == usual | {"x-stainless-os"}
    assert allowed_headers(start(cors_headers=("X-Mine",)), "x-stainless-os") == {"x-mine"}


def test_h36_h37_methods_are_answered_or_refused_with_the_list(live: Live) -> None:
    code, headers, body = live.ask("HEAD", "/health")
    assert (code, body) == (200, b"")
    assert int(headers["content-length"]) > 0
    code, headers, _ = live.ask("OPTIONS", "/health")
    assert (code, headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    code, headers, _ = live.ask("PUT", "/health", b"")
    assert (code, headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert get(live, "Host: localhost", method="TRACE") == 405
    assert get(live, "Host: localhost", method="PUT", path="/") == 405
    assert get(live, "Host: localhost", method="CONNECT", path="localhost:80") == 400
    assert get(live, "Host: localhost", method="X" * 1024) == 400


def test_h36_every_route_tells_its_methods_and_every_get_has_a_head(live: Live) -> None:
    routes = [(route.method, route.path.replace("{name:path}", "beta")) for d in DIALECTS for route in d.routes]
    routes = [(method, re.sub(r"\{\w+\}", "beta", path)) for method, path in routes]
    for path in {path for _, path in routes}:
        methods = {method for method, other in routes if other == path}
        code, headers, body = live.ask("OPTIONS", path)
        allowed = set(headers["allow"].split(", "))
        assert (code, body) == (204, b""), path
        assert allowed == methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set()), path
        code, headers, body = live.ask("HEAD", path)
        assert body == b"", path
        if "GET" in methods:
            status, same, _ = live.ask("GET", path)
            assert (code, headers["content-type"]) == (status, same["content-type"]), path
        else:
            assert (code, set(headers["allow"].split(", "))) == (405, allowed), path


@pytest.mark.parametrize(
    "path",
    [
        *(
            "//v1/models",
            "/v1/../health",
            "/v1/%2e%2e/health",
            "/v1/..",
            "/v1/./models",
            "/%00",
            "/" * 4000,
            "/nowhere",
        ),
        *("http://localhost/v1/models", "http://evil.example/v1/models", "*", "v1/models"),
    ],
)
def test_h38_an_odd_path_is_no_other_path(live: Live, path: str) -> None:
    assert get(live, "Host: localhost", path=path) in (400, 404)
    assert get(live, "Host: localhost", path="/" * 10_000) == 414
    assert get(live, "Host: localhost") == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "GZip", "identity, gzip"])
def test_h23_a_compressed_body_is_not_opened(live: Live, encoding: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    assert live.ask("POST", "/v1/completions", bomb, {"Content-Encoding": encoding})[0] == 415
    assert live.chat()[0] == 200


def test_h18_another_charset_is_refused(live: Live) -> None:
    assert live.ask("POST", "/v1/completions", b"{}", {"Content-Type": "application/json; charset=utf-16"})[0] == 400


def test_s04_without_a_key_only_the_open_routes_answer(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    for dialect in DIALECTS:
        for route in dialect.routes:
            path = route.path.replace("{name:path}", "beta")
            code = live.ask(route.method, path, {} if route.method == "POST" else None)[0]
            assert (code != 401) == (route.access == "open"), f"{route.method} {path}"
    assert {route.path for d in DIALECTS for route in d.routes if route.access == "open"} >= {
        "/health",
        "/api/v1/health",
    }


def test_a_key_opens_as_a_bearer_and_as_a_header(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    for headers in ({"Authorization": f"Bearer {KEY}"}, {"X-API-Key": KEY}, {"Authorization": f"bearer {KEY}"}):
        assert live.ask("GET", "/v1/models", headers=headers)[0] == 200
    looks = [
        live.ask("GET", "/v1/models", headers=headers)[2]
        for headers in (
            {},
            {"X-API-Key": "wrong"},
            {"Authorization": "Bearer " + "x" * 500},
            {"Authorization": "Basic x"},
        )
    ]
    assert all(look == looks[0] for look in looks)
    assert looks[0]["error"]["type"] == "authentication_error"


def test_anonymous_clients_may_ask_but_not_load_where_there_are_keys(start: Start) -> None:
    live = start(keys=KEYS, anonymous=True)
    assert live.ask("GET", "/v1/models")[0] == 200
    assert live.ask("POST", "/api/v1/models/beta/load", {})[0] == 401
    assert live.ask("POST", "/api/v1/models/beta/load", {}, {"X-API-Key": KEY})[0] == 200


def test_s18_what_was_computed_for_one_key_is_no_hit_for_another(start: Start) -> None:
    other = "another-key-of-thirty-two-letters"
    live = start(keys=(*KEYS, hashlib.sha256(other.encode()).digest()), anonymous=False)

    def cached(key: str) -> int:
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
        answer = live.ask("POST", "/v1/chat/completions", body, {"X-API-Key": key})[2]
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [cached(KEY), cached(other), cached(KEY) > 0, cached(other) > 0] == [0, 0, True, True]


def test_s02_another_address_needs_a_key() -> None:
    with pytest.raises(RequestError, match="no API key"):
        read_settings({"host": "0.0.0.0"}, {})
    assert not read_settings({"host": "0.0.0.0"}, {"WOOLLY_API_KEY": KEY}).anonymous
    assert read_settings({"host": "0.0.0.0"}, {}, insecure=True).insecure
    assert not read_settings({}, {}, insecure=True).insecure


def test_s15_an_error_tells_no_path_of_this_machine(live: Live) -> None:
    for path, body in (
        ("/v1/chat/completions", {"model": "nobody", "messages": []}),
        ("/api/v1/models/nobody/load", {}),
        ("/api/v1/models/x/load", {"path": "/etc/passwd"}),
        ("/api/v1/models/x/unload", {}),
    ):
        assert "models-of-an-odd-name" not in json.dumps(live.ask("POST", path, body)[2])


def test_a_request_keeps_its_harmless_id_and_loses_a_strange_one(live: Live) -> None:
    assert live.ask("GET", "/health", headers={"X-Request-Id": "mine-1"})[1]["x-request-id"] == "mine-1"
    assert live.ask("GET", "/health", headers={"X-Request-Id": "x" * 129})[1]["x-request-id"].startswith("req_")


def test_s21_a_client_that_asks_too_often_is_told_when_to_come_again(start: Start) -> None:
    live = start(anonymous_rpm=6, burst=3)
    codes = [live.ask("GET", "/v1/models")[0] for _ in range(4)]
    assert codes == [200, 200, 200, 429]
    code, headers, answer = live.ask("GET", "/api/v1/models")
    assert (code, answer["error"]["type"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(headers["retry-after"]) <= 10
    assert answer["error"]["details"]["retry_after"] == headers["retry-after"]
    assert live.ask("GET", "/health")[0] == 200  # health checks do not count towards the limit


def test_s21_a_bucket_fills_with_the_time_and_knows_its_clients_apart() -> None:
    now = 0.0
    rate = Rate(60, 2, clock=lambda: now)
    assert [rate.take("one") for _ in range(3)] == [0, 0, 1]
    assert rate.take("two") == 0
    now = 1.0
    assert [rate.take("one") for _ in range(2)] == [0, 1]
    now = 1000.0
    assert [rate.take("one") for _ in range(3)] == [0, 0, 1]
    for client in range(10_000):
        rate.take(str(client))
    assert len(rate._buckets) <= 4096


def test_without_cors_only_our_own_page_may_ask(start: Start) -> None:
    live = start(cors=False)
    assert live.ask("GET", "/v1/models", headers={"Origin": "http://localhost:5173"})[0] == 403
    own = {"Origin": f"http://127.0.0.1:{live.port}"}
    code, headers, _ = live.ask("GET", "/v1/models", headers=own)
    assert (code, headers.get("access-control-allow-origin")) == (200, None)


def test_a_preflight_tells_what_the_settings_say(start: Start) -> None:
    live = start(cors_methods=("GET",), cors_headers=("Accept", "X-Mine"), cors_max_age=5)
    headers = live.ask("OPTIONS", "/v1/models", headers={"Origin": "http://localhost:5173"})[1]
    assert headers["access-control-allow-methods"] == "GET"
    assert headers["access-control-allow-headers"] == "Accept, X-Mine"
    assert headers["access-control-max-age"] == "5"


def test_a_token_of_a_set_secret_outlives_the_server(start: Start) -> None:
    settings = {"token_secret": b"a-secret-of-twenty-characters", "token_life_s": 60}
    answer = start(**settings).ask("POST", "/api/v1/auth/token", {"user_id": "me"})[2]
    assert answer["expires_in"] == 60
    assert start(**settings).ask("POST", "/api/v1/auth/validate", {"token": answer["token"]})[2]["valid"]
    assert not start().ask("POST", "/api/v1/auth/validate", {"token": answer["token"]})[2]["valid"]


def test_s01_the_default_is_this_machine_by_both_of_its_names(start: Start) -> None:
    live = start()
    hosts = {sock.getsockname()[0] for sock in live.background._socks}
    assert "127.0.0.1" in hosts
    assert hosts <= {"127.0.0.1", "::1"}
    if "::1" in hosts:
        with socket.create_connection(("::1", live.port), timeout=60) as sock:
            sock.sendall(f"GET /health HTTP/1.1\r\nHost: [::1]:{live.port}\r\n\r\n".encode())
            assert sock.recv(100).startswith(b"HTTP/1.1 200")


CHAT = {"messages": HELLO, "max_tokens": 2}
OPENAI, ANTHROPIC = ("rate_limit_error", "rate_limit_exceeded"), ("error", "rate_limit_error")
TOO_MANY: tuple[tuple[str, dict[str, Any], Callable[[Any], object], object], ...] = (  # a 429 as each dialect writes it
    ("/v1/chat/completions", CHAT, lambda answer: (answer["error"]["type"], answer["error"]["code"]), OPENAI),
    ("/v1/completions", {"prompt": "x"}, lambda answer: (answer["error"]["type"], answer["error"]["code"]), OPENAI),
    ("/v1/responses", {"input": "x"}, lambda answer: (answer["error"]["type"], answer["error"]["code"]), OPENAI),
    ("/v1/messages", CHAT | {"model": "beta"}, lambda answer: (answer["type"], answer["error"]["type"]), ANTHROPIC),
    ("/api/chat", CHAT | {"model": "beta"}, lambda answer: type(answer["error"]), str),
    ("/completion", {"prompt": "x"}, lambda answer: answer["error"]["code"], 429),
    ("/api/v1/inference/chat", CHAT, lambda answer: answer["error"]["details"]["retry_after"], "1"),
    ("/api/generate", {"prompt": "x"}, lambda answer: answer["error"]["code"], "RATE_LIMITED"),
)


@pytest.mark.parametrize(("path", "body", "read", "expected"), TOO_MANY, ids=[row[0] for row in TOO_MANY])
def test_a_full_line_is_a_429_in_the_shape_of_each_dialect(
    start: Start, path: str, body: dict[str, Any], read: Callable[[Any], object], expected: object
) -> None:
    live = start(step_s=0.02, limits={"waiting": 0})
    streams = [
        Raw(live.port).post("/v1/completions", {"prompt": "x", "max_tokens": 900, "stream": True}) for _ in "1234"
    ]
    for raw in streams:
        raw.read(100)
    code, headers, answer = live.ask("POST", path, body)
    for raw in streams:
        raw.close()
    assert (code, headers["retry-after"]) == (429, "1")
    assert read(answer) == expected
    assert "0 requests are waiting already" in str(answer) and "try again in 1 s" in str(answer)


def test_more_requests_at_once_than_the_settings_say_are_refused(start: Start) -> None:
    live = start(step_s=0.02, limits={"max_concurrent_requests": 1})
    live.chat()
    raw = Raw(live.port).post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 500, "stream": True})
    raw.read(100)
    code, headers, _ = live.chat()
    assert (code, headers["retry-after"]) == (429, "1")
    raw.close()
    assert until(lambda: live.chat()[0] == 200)
