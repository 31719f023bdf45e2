"""Limits of the HTTP layer, with raw sockets and short times. After each bad request a good one succeeds."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import http.client
import json
import re
import select
import socket
import ssl
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.server.conftest import Live, Start
from tests.server.raw import Raw, status
from tests.server.stand_in import until
from tests.server.tls import certificate, needs_openssl
from woolly.config.serving import SERVING
from woolly.server.accounts import Bound, Resource
from woolly.server.dispatch import OPEN
from woolly.server.http.output import Output
from woolly.server.http.protocol import LINGER_S, Connection
from woolly.server.http.request import bound_of_bodies
from woolly.server.http.sips import SIP
from woolly.server.listener import ACCEPTED

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
LONG_S = 100.0  # on a clock that is put forward
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def answered(live: Live, data: bytes) -> bytes:
    raw = Raw(live.port).send(data)
    answer = raw.rest()
    assert live.ask("GET", "/health")[0] == 200
    return answer


def over_tls(live: Live, trusted: Path) -> int:
    """The status of a good request over TLS."""
    context = ssl.create_default_context(cafile=str(trusted))
    connection = http.client.HTTPSConnection("127.0.0.1", live.port, context=context, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/health")
        return connection.getresponse().status


def test_h20_a_body_that_is_announced_too_large_is_refused_before_it_comes(live: Live) -> None:
    answer = answered(live, POST + b"Content-Length: 11534336\r\n\r\n")
    assert status(answer) == 413
    assert b'"code":"payload_too_large"' in answer


@pytest.mark.parametrize("path", ["/api/v1/auth/token", "/api/v1/auth/validate"])
def test_h20_who_needs_no_key_sends_no_more_than_a_few_kibibytes(live: Live, path: str) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n" % path.encode()
    assert status(answered(live, head + b"Content-Length: %d\r\n\r\n" % (OPEN + 1))) == 413
    chunk = b"%x\r\n%b\r\n" % (2 * OPEN, bytes(2 * OPEN))
    assert status(answered(live, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)) == 413
    assert live.ask("POST", path, {"user_id": "me", "token": "x" * (OPEN - 100)})[0] == 200


def test_h52_bodies_are_on_the_account_of_their_caller_before_they_come(live: Live) -> None:
    accounts, most = live.app.accounts, SERVING.max_body_size
    each = int(bound_of_bodies(SERVING).each) // most
    begun = [Raw(live.port).send(POST + b"Content-Length: %d\r\n\r\n{" % most) for _ in range(each)]
    assert until(lambda: accounts.out(Resource.BODY_BYTES) == each * most)
    answer = answered(live, POST + b"Content-Length: %d\r\n\r\n" % most)
    assert (status(answer), b"retry-after: 1" in answer) == (503, True)
    assert live.chat()[0] == 200  # a small one has room
    for raw in begun:
        raw.close()
    assert until(lambda: accounts.empty)


def test_h52_a_body_in_chunks_is_on_the_account_as_it_comes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.server.app.bound_of_bodies", lambda limits: Bound(100_000, 100_000))
    live = start()
    raw = Raw(live.port).send(CHUNKED + b"%x\r\n" % 200_000 + bytes(99_000))
    assert until(lambda: live.app.accounts.out(Resource.BODY_BYTES) == 99_000)
    assert status(raw.send(bytes(101_000)).rest()) == 503
    assert until(lambda: live.app.accounts.empty)


def test_h21_a_chunked_body_is_counted(start: Start) -> None:
    live = start(limits={"max_body_size": 1000})
    chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001
    assert status(answered(live, POST + chunks)) == 413
    assert status(answered(live, CHUNKED + b"zz\r\n")) == 400


@pytest.mark.parametrize(
    "data",
    [
        b"5;" + b"x" * (2 << 20),
        b"5;" + b"x" * (2 << 20) + b"\r\nhello\r\n0\r\n\r\n",
        b"1;" + b"x" * 100 + b"\r\nx\r\n" + (b"1;" + b"x" * 100 + b"\r\nx\r\n") * 10_000,
        b"1\r\nx\r\n" * (1 << 20),
        b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 300_000,
    ],
    ids=["extension", "extension that ends", "extensions", "small chunks", "trailers"],
)
def test_h21_what_stands_around_chunks_is_counted_too(live: Live, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    parsed, parse = [0], Connection.data_received

    def received(protocol: Connection, piece: bytes) -> None:
        parsed[0] += 0 if protocol._lingering else len(piece)
        parse(protocol, piece)

    monkeypatch.setattr(Connection, "data_received", received)
    raw = Raw(live.port)
    with contextlib.suppress(ConnectionError):
        raw.send(CHUNKED + data)
    answer = raw.rest()
    assert status(answer) in (400, 413, 431) or answer == b""  # a reset may overtake the answer
    assert parsed[0] < 1 << 20 < len(data)  # later bytes are not parsed
    assert live.ask("GET", "/health")[0] == 200


def test_h21_a_chunked_body_without_an_end_is_cut_off(start: Start) -> None:
    live = start(limits={"body_s": LONG_S})
    raw = Raw(live.port).send(CHUNKED + b"5\r\nhello\r\n")
    assert until(lambda: any(one.exchange for one in live.background._listener.server_state.connections))
    live.forward(2 * LONG_S)
    assert status(raw.rest()) == 408
    assert live.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize("size", [16, 1000, 65536])
def test_a_body_in_ordinary_chunks_is_read(live: Live, size: int) -> None:
    body = json.dumps({"prompt": "x" * 100, "max_tokens": 1, "metadata": {"x": "y" * 500_000}}).encode()
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
    )
    assert status(answered(live, CHUNKED[:-2] + b"Connection: close\r\n\r\n" + chunks + b"0\r\n\r\n")) == 200


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 4\r\n",  # the bytes beyond it would be another request
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
    ],
)
def test_h22_a_length_that_can_be_read_in_two_ways_is_refused(live: Live, lines: bytes) -> None:
    assert status(answered(live, POST + lines + b"\r\nhello")) == 400


def test_h24_slow_headers_are_cut_off_and_others_are_served(start: Start) -> None:
    live = start(limits={"header_s": LONG_S})
    slow = [Raw(live.port).send(b"GET /hea") for _ in range(200)]
    silent = Raw(live.port)
    assert until(lambda: len(live.background._listener.server_state.connections) == 201)
    live.forward(LONG_S / 2)
    assert live.ask("GET", "/health")[0] == 200
    assert not select.select([raw.sock for raw in (*slow, silent)], [], [], 0)[0]  # the server still waits for them
    live.forward(LONG_S / 2)
    assert {status(raw.rest()) for raw in slow} == {408}
    assert silent.rest() == b""


@needs_openssl
def test_h24_a_tls_handshake_that_does_not_end_is_cut_off_and_others_are_served(start: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    live = start(limits={"header_s": LONG_S}, certificate=cert, certificate_key=key)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the beginning of a handshake
    begun = [Raw(live.port), Raw(live.port).send(hello), Raw(live.port).send(hello[:1])]
    trusted = ssl.create_default_context(cafile=str(cert))
    assert over_tls(live, cert) == 200
    live.forward(LONG_S)
    assert [raw.rest() for raw in begun] == [b"", b"", b""]
    silent = trusted.wrap_socket(Raw(live.port).sock, server_hostname="localhost")
    assert until(lambda: any(one._heading for one in live.background._listener.server_state.connections))
    live.forward(LONG_S)
    assert silent.recv(1) == b""  # after the handshake the limit for headers applies
    assert over_tls(live, cert) == 200


def test_h24_headers_begun_behind_an_answer_have_their_time_from_its_end(start: Start) -> None:
    live = start(step_s=0.001, limits={"header_s": LONG_S, "keep_alive_s": 100 * LONG_S})
    live.chat()
    (talker,) = live.loader.talkers
    talker.runner.go.clear()
    raw = Raw(live.port).post("/v1/completions", {"prompt": "x", "max_tokens": 3, "model": "beta"}).send(b"GET /hea")
    connections = live.background._listener.server_state.connections
    assert until(lambda: [one._unparsed for one in connections] == [b"GET /hea"])
    live.forward(2 * LONG_S)
    talker.runner.go.set()
    assert status(raw.answer()) == 200
    live.forward(LONG_S / 2)
    assert not select.select([raw.sock], [], [], 0)[0]
    live.forward(LONG_S / 2)
    assert status(raw.rest()) == 408


@needs_openssl
def test_l12_of_what_comes_over_tls_a_little_is_decrypted_in_a_turn(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, updated = list[int](), asyncio.sslproto.SSLProtocol.buffer_updated

    def noted(tls: asyncio.sslproto.SSLProtocol, nbytes: int) -> None:
        sizes.append(nbytes)
        updated(tls, nbytes)

    monkeypatch.setattr(asyncio.sslproto.SSLProtocol, "buffer_updated", noted)
    cert, key = certificate(tmp_path)
    live = start(certificate=cert, certificate_key=key)
    client = ssl.create_default_context(cafile=str(cert)).wrap_socket(Raw(live.port).sock, server_hostname="localhost")
    client.sendall(HEAD.replace(b"/health", b"/v1/models") + b"Content-Length: 20000\r\n\r\n")
    for _ in range(20_000):  # each a record of its own
        client.sendall(b"x")
    client.sendall(HEAD + b"Connection: close\r\n\r\n")
    answer = b""
    while piece := client.recv(65536):
        answer += piece
    assert answer.count(b"HTTP/1.1 200") == 2
    assert sum(sizes) > 20 * 20_000 and max(sizes) <= SIP


@needs_openssl
def test_h26_a_connection_counts_before_its_tls_handshake(start: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    live = start(limits={"connections": 3, "header_s": LONG_S}, certificate=cert, certificate_key=key)
    silent = [Raw(live.port) for _ in range(3)]
    assert until(lambda: live.app.accounts.out(Resource.CONNECTIONS) == 3)
    assert Raw(live.port).rest() == b""
    silent.pop().close()
    assert until(lambda: live.app.accounts.out(Resource.CONNECTIONS) == 2)
    assert over_tls(live, cert) == 200
    silent.pop().send(b"no hello")  # a handshake that fails is over, too
    for raw in silent:
        raw.reset()
    assert until(lambda: live.app.accounts.empty and not live.background._listener.server_state.connections)


@needs_openssl
def test_a_request_that_comes_with_the_end_of_a_tls_handshake_is_answered(start: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    live = start(certificate=cert, certificate_key=key)
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(cert)).wrap_bio(into, out, server_hostname="localhost")
    raw = Raw(live.port)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            raw.send(out.read())
            into.write(raw.read())
    client.write(HEAD + b"Connection: close\r\n\r\n")
    raw.send(out.read())  # the last part of the handshake and the request, in one packet
    answer = b""
    while not answer:
        into.write(raw.read())
        with contextlib.suppress(ssl.SSLWantReadError):  # only tickets for later handshakes
            answer = client.read(1 << 20)
    assert status(answer) == 200


def test_h25_a_slow_body_is_cut_off(start: Start) -> None:
    live = start(limits={"body_s": LONG_S})
    raw = Raw(live.port).send(POST + b"Content-Length: 10\r\n\r\n{")
    assert until(lambda: any(one.exchange for one in live.background._listener.server_state.connections))
    live.forward(LONG_S / 2)
    assert not select.select([raw.sock], [], [], 0)[0]
    live.forward(LONG_S)
    assert status(raw.rest()) == 408
    assert live.ask("GET", "/health")[0] == 200


def test_h26_one_connection_more_than_allowed_is_told_so(start: Start) -> None:
    live = start(limits={"connections": 5})
    loaded = [Raw(live.port).send(HEAD + b"\r\n") for _ in range(5)]
    assert {status(raw.answer()) for raw in loaded} == {200}
    answer = Raw(live.port).rest()
    assert status(answer) == 503
    assert b"retry-after: 1" in answer
    for raw in loaded:
        assert status(raw.send(HEAD + b"\r\n").answer()) == 200  # the others live
        raw.close()
    assert until(lambda: live.ask("GET", "/health")[0] == 200)


def test_what_is_written_goes_out_at_once_and_waits_for_no_packet_to_be_acknowledged(live: Live) -> None:
    raw = Raw(live.port).send(HEAD + b"\r\n")
    assert status(raw.answer()) == 200
    connections = live.background._listener.server_state.connections
    delays = [
        one.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for one in connections
        if isinstance(one, Connection)
    ]
    assert delays == [1]


def test_h26_connections_that_come_together_are_accepted_a_few_in_a_turn(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, accepted = [0], Counter[int]()
    connection_made = Connection.connection_made

    def made(connection: Connection, transport: asyncio.Transport) -> None:
        accepted[turns[0]] += 1
        connection_made(connection, transport)

    async def count(begun: threading.Event, go: threading.Event) -> None:
        begun.set()
        go.wait()  # the loop stands still while they come
        while accepted.total() < 200:
            turns[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Connection, "connection_made", made)
    loop = live.background._listener._loop
    assert loop is not None
    begun, go = threading.Event(), threading.Event()
    counting = asyncio.run_coroutine_threadsafe(count(begun, go), loop)
    begun.wait()
    raws = [Raw(live.port).send(HEAD + b"\r\n") for _ in range(200)]
    go.set()
    counting.result(60)
    assert max(accepted.values()) <= ACCEPTED
    assert {status(raw.answer()) for raw in raws} == {200}


def test_h27_pipelined_requests_are_answered_in_order(live: Live) -> None:
    requests = [HEAD + b"X-Request-Id: number-%d\r\n\r\n" % number for number in range(100)]
    requests[-1] = requests[-1][:-2] + b"Connection: close\r\n\r\n"
    answer = Raw(live.port).send(b"".join(requests)).rest()
    assert answer.count(b"HTTP/1.1 200 OK") == 100
    assert re.findall(rb"x-request-id: number-(\d+)", answer) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\n", (414, 431)),
        (HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n", (431,)),
        (HEAD + b"X: y\r\n" * 10_000 + b"\r\n", (431,)),
        (HEAD + b"no colon\r\n\r\n", (400,)),
        (HEAD + b"X: a\0b\r\n\r\n", (400,)),
        (HEAD + b"X: a\rb\r\n\r\n", (400,)),
        (HEAD + b"X: a\nb: c\r\n\r\n", (400,)),
        (HEAD + b"X : a\r\n\r\n", (400,)),
        (b"GET /\r\n\r\n", (400,)),
        (b"GET / HTTP/3.7\r\n\r\n", (400,)),
        (bytes(range(128, 256)) * 10, (400,)),
        (b"\0\0\0\0\r\n\r\n", (400,)),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400,)),
        (b"SSH-2.0-OpenSSH_9.6\r\n", (400,)),
    ],
)
def test_h28_h29_absurd_requests_are_refused_and_closed(start: Start, data: bytes, expected: tuple[int, ...]) -> None:
    live = start(limits={"header_s": LONG_S, "body_s": LONG_S, "keep_alive_s": LONG_S})
    raw = Raw(live.port)
    with contextlib.suppress(ConnectionError):
        raw.send(data)
    answer = raw.rest()  # at once: no time passes here that a limit would notice
    assert status(answer) in expected or answer == b""  # a reset may overtake the answer
    assert live.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    "lines",
    [
        b"Date: Thu, 99 Foo 0000 99:99:99\r\n",
        b"If-None-Match: *\r\nIf-Match: x\r\nIf-Modified-Since: never\r\nIf-Range: x\r\n",
        b"Range: bytes=0-1\r\n",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x\r\n",
    ],
)
def test_h49_headers_that_ask_for_something_else_change_nothing(live: Live, lines: bytes) -> None:
    raw = Raw(live.port)
    for _ in range(2):
        answer = raw.send(HEAD + lines + b"\r\n").read()
        while not answer.endswith(b"}"):
            piece = raw.read()
            assert piece, answer
            answer += piece
        assert status(answer) == 200
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == "ok"
    raw.close()


def test_headers_at_the_limit_pass_and_one_field_more_does_not(start: Start) -> None:
    live = start(limits={"header_fields": 10})
    assert status(answered(live, HEAD + b"X: y\r\n" * 8 + b"Connection: close\r\n\r\n")) == 200
    assert status(answered(live, HEAD + b"X: y\r\n" * 9 + b"Connection: close\r\n\r\n")) == 431


def test_an_idle_connection_is_closed(start: Start) -> None:
    live = start(limits={"keep_alive_s": LONG_S})
    raw = Raw(live.port).send(HEAD + b"\r\n")
    assert status(raw.answer()) == 200
    live.forward(LONG_S / 2)
    assert not select.select([raw.sock], [], [], 0)[0]
    live.forward(LONG_S)
    assert raw.rest() == b""


def test_h49_a_client_that_waits_for_leave_to_send_gets_it_after_the_check(live: Live) -> None:
    body = b'{"prompt":"x","max_tokens":1}'
    raw = Raw(live.port).send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
    assert raw.read().startswith(b"HTTP/1.1 100 Continue")
    assert status(raw.send(body).read()) == 200
    refused = Raw(live.port).send(POST + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n").rest()
    assert status(refused) == 413


def test_an_error_that_is_answered_before_the_body_has_come_reaches_a_client_that_sends_it_all(live: Live) -> None:
    head = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (2 << 20)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", live.port), timeout=60) as sock:
            sock.sendall(head)
            for _ in range(32):
                sock.sendall(bytes(64 << 10))
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert answer.endswith(b"}")


def test_the_rest_of_a_body_is_not_waited_for_longer_than_a_moment(start: Start) -> None:
    live = start(limits={"body_s": LONG_S})
    raw = Raw(live.port).send(b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (2 << 20))
    assert raw.rest().startswith(b"HTTP/1.1 404 ")
    raw.send(b"x")
    live.forward(LINGER_S)
    with pytest.raises(OSError):  # the connection was closed, so sending fails
        while True:
            raw.send(b"x")


def test_what_is_written_after_a_client_has_gone_is_dropped() -> None:
    class Lost:
        def __init__(self) -> None:
            self.closing, self.written = False, b""

        def is_closing(self) -> bool:
            return self.closing

        def write(self, data: bytes) -> None:
            self.written += data

        def set_write_buffer_limits(self, high: int) -> None: ...

        def get_extra_info(self, name: str) -> None: ...

    transport = Lost()
    output = Output(transport, SERVING)  # type: ignore[arg-type]
    output.write(b"read")
    transport.closing = True
    output.write(b"lost")
    assert transport.written == b"read"
