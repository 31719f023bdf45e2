"""Requests that are almost right, to every route: bytes are changed, dropped, doubled or taken from elsewhere.

Each is sent over a plain socket. The seeds are fixed; a failure prints the seed, which reproduces its request.
"""

from __future__ import annotations

import json
import random
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.stand_in import until
from woolly.server.dialect_table import DIALECTS

ROUTES = sorted({(route.method, re.sub(r"\{[^}]*\}", "beta", route.path)) for d in DIALECTS for route in d.routes})
BODY = {
    "model": "beta",
    "messages": HELLO,
    "prompt": "Hello",
    "input": "Hello",
    "query": "Hello",
    "documents": ["a", "b"],
    "content": "Hello",
    "max_tokens": 2,
    "options": {"num_predict": 2},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {},
}
PIECES = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"%00",
        b"%2e%2e/",
        b"../",
        b"//",
        b"?",
        b"#",
    ),
    *(b"{", b"}", b"[" * 100, b'"', b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 400),
    *(b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n"),
    *(b"Upgrade: websocket\r\n", b"Authorization: Bearer x\r\n", b"Origin: null\r\n", b"Content-Encoding: gzip\r\n"),
)
SILENCE = 0.1  # seconds without bytes after which none are expected: a server may wait for announced bytes


def mutated(seed: int) -> bytes:
    rng = random.Random(seed)
    method, path = ROUTES[seed % len(ROUTES)]
    fields = {name: BODY[name] for name in rng.sample(sorted(BODY), rng.randrange(1, len(BODY)))}
    fields |= {"stream": True} if rng.random() < 0.3 else {}
    body = json.dumps(fields).encode() if method in ("POST", "DELETE") else b""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    request = bytearray(head.encode() + body)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(request))
        end = min(len(request), at + rng.choice((1, 2, 8, 40)))
        match rng.randrange(4):
            case 0:
                request[at] ^= 1 << rng.randrange(8)
            case 1 if end - at < len(request):
                del request[at:end]
            case 2:
                request[at:at] = request[at:end] * rng.choice((1, 3, 50))
            case _:
                request[at:at] = rng.choice(PIECES)
    return bytes(request)


def answer_to(port: int, request: bytes) -> bytes:
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(request)
        sock.settimeout(SILENCE)
        try:
            while piece := sock.recv(1 << 16):
                answer += piece
        except (TimeoutError, ConnectionResetError):
            pass
    return answer


def complaint(port: int, seed: int) -> str:
    """What is wrong with the answer to a mutated request; empty if nothing is."""
    answer = answer_to(port, mutated(seed))
    head, _, body = answer.partition(b"\r\n\r\n")
    if not answer:
        return ""  # closed, or waiting for more
    status_line = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
    if not status_line:
        return f"{seed}: no status: {head[:80]!r}"
    status = int(status_line[1])
    if status == 500:
        return f"{seed}: {answer[:300]!r}"
    if status >= 400 and b"content-type: application/json" in head.lower() and body:
        length = re.search(rb"content-length: (\d+)", head.lower())  # behind it may be the answer to what was left over
        try:
            json.loads(body[: int(length[1])] if length else body)
        except ValueError:
            return f"{seed}: the error is no JSON: {body[:200]!r}"
    return ""


def survives(live: Live, seeds: range) -> None:
    with ThreadPoolExecutor(16) as threads:
        wrong = [
            wrong_answer for wrong_answer in threads.map(lambda seed: complaint(live.port, seed), seeds) if wrong_answer
        ]
    assert not wrong, "\n".join(wrong[:10])
    assert live.ask("GET", "/health")[0] == 200
    assert live.chat()[0] == 200
    assert until(lambda: all(model.idle for model in live.loader.talkers))
    assert until(lambda: live.app.state.open == 0)


def test_h50_two_thousand_mutated_requests_break_nothing(start: Start) -> None:
    assert len(ROUTES) > 80
    survives(start(manage_models=False), range(2_000))


@pytest.mark.soak
def test_h50_many_mutated_requests_break_nothing(start: Start) -> None:
    survives(start(manage_models=False), range(2_000, 102_000))
