"""One connection over HTTP/1.1 without a socket: requests in any pieces, one at a time, and nothing mixed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from woolly.config.serving import SERVING
from woolly.server.accounts import Accounts, Bound, Resource, holder_of
from woolly.server.http.pieces import LINE, SLICE, Pieces
from woolly.server.http.protocol import PIECES, PIPELINED, Connection, Shared
from woolly.server.http.request import Receive, Scope, Send

T = TypeVar("T")
GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"
ENDS = b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"  # in a body it is no end and no request
POST = b"POST /%%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(ENDS), ENDS)
CHUNKED = b"POST /%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = CHUNKED + b"%x\r\n%b\r\n4\r\n\r\n\r\n\r\n00\r\n\r\n" % (len(ENDS), ENDS)
CHUNKS = CHUNKED + b"%x;a=b\r\n%b\r\n2\r\nhi\r\n0\r\nX: trailer\r\n\r\n" % (len(ENDS), ENDS)


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = self.aborted = False
        self.reading = True

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("198.51.100.7", 40_000), "sockname": ("127.0.0.1", 80)}.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    async def takes(self) -> None:
        """Wait until more may come."""
        while not self.reading and not self.closing:
            await asyncio.sleep(0)


class Echo:
    """Answers with the path and the body of each request; waits for `go` before it does."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.begun = 0
        self.running = self.most = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            body, more = body + message["body"], message["more_body"]
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (scope["path"].encode() + b"=", body):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self.running -= 1


class Host:
    def __init__(self, limit: float = 4) -> None:
        self.app = Echo()
        self.accounts = Accounts({Resource.CONNECTIONS: Bound(limit, limit)})
        self._shared = Shared(SERVING, self.accounts, lambda path, error: str(error))
        self.state = ServerState()

    def connect(self) -> tuple[Connection, Wire]:
        connection, wire = Connection(self._shared, self.app, self.state), Wire()
        connection.connection_made(wire)  # type: ignore[arg-type]
        return connection, wire


def running(story: Callable[[Host], Awaitable[T]]) -> T:
    async def run() -> T:
        return await story(Host())

    return asyncio.run(run())


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def answer(path: int, body: bytes) -> bytes:
    pieces = [b"/%d=" % path, body]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


REQUESTS = b"".join(kind % number for number, kind in enumerate((GET, POST, CHUNKS, GET, PLAIN, POST, GET)))
ANSWERS = b"".join(
    answer(number, body) for number, body in enumerate((b"", ENDS, ENDS + b"hi", b"", ENDS + b"\r\n\r\n", ENDS, b""))
)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({*places, len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 64, 10_000])
def test_h27_requests_in_pieces_of_any_size_are_answered_in_order_and_one_at_a_time(size: int) -> None:
    async def story(host: Host) -> None:
        connection, wire = host.connect()
        for piece in cut(REQUESTS, range(size, len(REQUESTS), size)):
            connection.data_received(piece)
            await settled()
        assert wire.written == ANSWERS
        assert (host.app.begun, host.app.most) == (7, 1)
        connection.connection_lost(None)
        assert host.accounts.empty

    running(story)


def test_h27_requests_cut_at_any_place_are_answered_as_if_they_had_come_at_once() -> None:
    chance = random.Random(3)

    async def story(host: Host) -> None:
        for _ in range(300):
            connection, wire = host.connect()
            host.app.most = 0
            for piece in cut(REQUESTS, chance.choices(range(1, len(REQUESTS)), k=chance.randrange(6))):
                connection.data_received(piece)
                if chance.random() < 0.5:
                    await settled()
            await settled()
            assert wire.written == ANSWERS
            assert host.app.most == 1
            connection.connection_lost(None)

    running(story)


def test_h51_what_stands_behind_a_request_waits_unparsed_and_too_much_of_it_ends_the_connection() -> None:
    async def story(host: Host) -> None:
        connection, wire = host.connect()
        host.app.go.clear()
        connection.data_received(GET % 0)
        for _ in range(PIPELINED // 1024):
            connection.data_received(b"GET / HTTP/1.1\r\n\r\n" * 56)
        await settled()
        assert (host.app.begun, wire.closing) == (1, False)
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n" * 200)
        assert wire.aborted
        connection.connection_lost(None)
        host.app.go.set()
        await settled()
        assert (host.app.begun, wire.written, host.accounts.empty) == (1, b"", True)

    running(story)


def test_h51_one_read_full_of_tiny_requests_begins_one_of_them() -> None:
    async def story(host: Host) -> None:
        connection, wire = host.connect()
        connection.data_received(b"GET / HTTP/1.1\r\n\r\n" * 14_000)
        await settled()
        assert wire.aborted
        assert host.app.begun <= 1

    running(story)


@pytest.mark.parametrize(
    "bad", [b"\x16\x03\x01", b"GET / HTTP/9.9\r\n\r\n", b"GET http://evil/ HTTP/1.1\r\nHost: x\r\n\r\n"]
)
def test_h51_a_bad_request_behind_an_answer_is_refused_after_it(bad: bytes) -> None:
    async def story(host: Host) -> None:
        connection, wire = host.connect()
        host.app.go.clear()
        connection.data_received(GET % 0 + bad)
        await settled()
        assert wire.written == b""
        host.app.go.set()
        await settled()
        assert wire.written.startswith(answer(0, b"") + b"HTTP/1.1 400 ")

    running(story)


def test_an_error_never_stands_in_an_answer_that_has_begun() -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def story(host: Host) -> None:
        host.app = early  # type: ignore[assignment]
        connection, wire = host.connect()
        connection.data_received(CHUNKED % 0)
        await settled()
        begun = wire.written
        connection.data_received(b"no chunk\r\n")
        assert b"begun" in begun and wire.written == begun
        assert wire.aborted

    running(story)


async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that answers without reading the body."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.parametrize("length", [b"Content-Length: 99999999999", b"Transfer-Encoding: chunked"])
def test_h51_a_body_that_nobody_reads_is_thrown_away_only_so_far(length: bytes) -> None:
    async def story(host: Host) -> None:
        host.app = deaf  # type: ignore[assignment]
        connection, wire = host.connect()
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n" + length + b"\r\n\r\n")
        await settled()
        piece = bytes(64 << 10)
        if b"chunked" in length:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        sent = 0
        while not wire.closing and sent < 2 * SERVING.max_body_size:
            await wire.takes()
            connection.data_received(piece)
            sent += len(piece)
        await settled()
        assert wire.closing
        assert SERVING.max_body_size <= sent < SERVING.max_body_size + 2 * len(piece)

    running(story)


@given(st.lists(st.binary(max_size=40) | st.sampled_from([ENDS, b"0\r\n\r\n", b"\r\n" * 900])), st.data())
def test_l12_the_pieces_of_a_body_in_chunks_end_where_it_does(contents: list[bytes], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([b"%x", b"%X", b"0%x", b"%x;a", b"%08x"]), min_size=len(contents)))
    chunks = [size % len(each) + b"\r\n" + each + b"\r\n" for size, each in zip(sizes, contents, strict=False) if each]
    body = b"".join((*chunks, data.draw(st.sampled_from([b"0\r\n\r\n", b"000\r\n\r\n", b"0\r\nX: y\r\n\r\n"]))))
    wire, ends = body + b"GET", set[int]()
    pieces, at = Pieces(), 0
    pieces.begin(chunked=True)
    for piece in cut(wire, data.draw(st.lists(st.integers(1, len(wire) - 1), max_size=8))):
        begin = 0
        while begin < len(piece):
            end = pieces.end(piece, begin)
            assert begin < end <= begin + SLICE + LINE
            at, begin = at + end - begin, end
            ends.add(at)
    assert len(body) in ends


CRLF = 200_000  # line ends in one chunk: each pair of them might be the end of the body


@pytest.mark.parametrize("app", [Echo(), deaf], ids=["read", "unread"])
def test_l12_of_a_body_that_comes_in_many_pieces_a_few_are_parsed_in_a_turn(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds, feed = [0], Connection._feed

    def counted(connection: Connection, piece: memoryview) -> None:
        feeds[0] += 1
        feed(connection, piece)

    monkeypatch.setattr(Connection, "_feed", counted)

    async def story(host: Host) -> None:
        host.app = app
        connection, wire = host.connect()
        connection.data_received(CHUNKED % 0 + b"%x\r\n" % (2 * CRLF) + b"\r\n" * CRLF + b"\r\n0\r\n\r\n" + GET % 1)
        most = feeds[0]
        while wire.written.count(b"HTTP/1.1 200") < 2:
            before = feeds[0]
            await asyncio.sleep(0)
            most = max(most, feeds[0] - before)
        await settled()
        assert 10 * PIECES < feeds[0] < CRLF / 100 and most <= PIECES
        assert wire.reading and not wire.closing
        if app is not deaf:
            assert wire.written == answer(0, b"\r\n" * CRLF) + answer(1, b"")

    running(story)


def test_l12_a_body_of_tiny_pieces_whose_sizes_are_no_plain_numbers_is_refused() -> None:
    async def story(host: Host) -> None:
        connection, wire = host.connect()
        connection.data_received(CHUNKED % 0 + b"%x;a\r\n" % 400_000 + b"\r\n" * 200_000)
        while not wire.written:
            await asyncio.sleep(0)
        assert wire.written.startswith(b"HTTP/1.1 400 ")

    running(story)


def test_a_body_that_nobody_reads_leaves_the_connection_to_the_next_request() -> None:
    async def story(host: Host) -> None:
        host.app = deaf  # type: ignore[assignment]
        connection, wire = host.connect()
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n")
        await settled()
        for _ in range(2):
            connection.data_received(bytes(100_000))
        connection.data_received(GET % 1)
        await settled()
        assert wire.written.count(b"HTTP/1.1 200 OK") == 2
        assert not wire.closing

    running(story)


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket", b"TLS/1.2"])
@pytest.mark.parametrize("length", [b"Content-Length: 40\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_h22_a_request_for_another_protocol_has_no_body_that_could_be_read_as_a_request(
    upgrade: bytes, length: bytes
) -> None:
    async def story(host: Host) -> None:
        connection, wire = host.connect()
        head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n" + length
        connection.data_received(head + b"\r\n")
        connection.data_received(b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        await settled()
        assert wire.written.startswith(b"HTTP/1.1 400 ")
        assert host.app.begun == 0

    running(story)


def test_h26_a_connection_is_counted_until_it_is_lost() -> None:
    async def story(host: Host) -> None:
        four = [host.connect() for _ in range(4)]
        _, fifth = host.connect()
        assert fifth.written.startswith(b"HTTP/1.1 503 ") and fifth.closing
        assert host.accounts.out(Resource.CONNECTIONS, "198.51.100.7") == 4
        four[0][0].connection_lost(None)
        _, again = host.connect()
        assert again.written == b"" and not again.closing
        assert len(host.state.connections) == 4

    running(story)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("198.51.100.7", "198.51.100.7", True),
        ("198.51.100.7", "198.51.100.8", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", True),  # one machine may have them all
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:198.51.100.7", "198.51.100.7", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("::1", "::1", False),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", False),
    ],
)
def test_a_connection_belongs_to_the_network_it_comes_from_and_on_this_machine_to_itself(
    one: str, other: str, same: bool
) -> None:
    assert (holder_of(one, 1) == holder_of(other, 2)) is same
    assert holder_of(one, 1) == holder_of(one, 1)
