"""WebSockets: several requests over one connection, the same text as the routes, the same guard."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.server.conftest import Live, Start
from tests.server.process import Process, environ
from tests.server.raw import Raw, status
from tests.server.stand_in import CancelWatch, until
from woolly.server.accounts import Bound, Resource
from woolly.server.dialects.woolly import generation
from woolly.server.http.upgraded import FRAMES, HEADER, SLICE, Upgraded
from woolly.server.websocket import connection
from woolly.server.websocket.connection import PATHS
from woolly.server.workers import LARGE

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)
UNREAD_S = 100.0  # on the clock that is put forward
BODY_S = 8.0  # twice of which pass before a ping has to be answered
PING, CLOSE = 9, 8  # opcodes
KEY = "a-key-of-thirty-two-characters-x"
CONFIG = {"max_tokens": 6, "temperature": 0}


@contextmanager
def talk(live: Live, path: str = "/ws", **more: Any) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{live.port}{path}", proxy=None, **more) as socket:
        assert json.loads(socket.recv(timeout=60))["type"] == "welcome"
        yield socket


def say(socket: ClientConnection, message: Any) -> None:
    socket.send(message if isinstance(message, str | bytes) else json.dumps(message))


def receive(socket: ClientConnection) -> Any:
    return json.loads(socket.recv(timeout=60))


def until_end(socket: ClientConnection) -> list[Any]:
    rows = [receive(socket)]
    while rows[-1]["type"] not in ("complete", "error", "GenerationComplete", "Error"):
        rows.append(receive(socket))
    return rows


def frame(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    """A frame of a client; its mask changes nothing."""
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xff" + len(data).to_bytes(8, "big")
    return bytes([opcode | (0x80 if fin else 0)]) + size + bytes(4) + data


def opened(live: Live, behind: bytes = b"", **more: int) -> Raw:
    """A connection after its handshake, of which the welcome is not read yet; behind: sent in the same packet."""
    raw, answer = Raw(live.port, **more).send(HANDSHAKE + b"\r\n" + behind), b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += raw.sock.recv(1)
    assert status(answer) == 101
    return raw


def connections(live: Live) -> list[Upgraded]:
    return [one for one in live.background._listener.server_state.connections if isinstance(one, Upgraded)]


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


def test_h45_requests_of_one_connection_are_told_apart_and_an_id_in_use_is_refused(start: Start) -> None:
    live = start(step_s=0.01)
    with talk(live) as socket:
        for id_ in (1, "1"):
            say(socket, {"type": "generate", "id": id_, "prompt": f"Hi {id_!r}", "config": CONFIG})
        say(socket, {"type": "generate", "id": 1, "prompt": "again", "config": CONFIG})
        ends, refused = {}, []
        while len(ends) < 2:
            row = receive(socket)
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
        receive(socket)
        say(socket, {"type": "cancel", "id": "long"})
        end = until_end(socket)[-1]
        assert (end["type"], end["finish_reason"], end["request_id"]) == ("complete", "cancelled", "long")
        assert until(lambda: live.loader.talkers[0].idle)
        say(socket, {"type": "cancel", "id": "long"})
        assert receive(socket)["error"]["code"] == 400
        say(socket, {"type": "chat", "id": "next", "messages": [{"role": "user", "content": "Hi"}], "config": CONFIG})
        assert until_end(socket)[-1]["tokens_generated"] == 6


def test_h46_a_cancel_frees_its_pages_within_one_step(start: Start) -> None:
    live = start(step_s=0.1)
    completed(live, "warm")
    talker = live.loader.talkers[0]
    free, watch = talker.engine.pages.available, CancelWatch(talker)
    with talk(live) as socket:
        say(socket, {"type": "generate", "id": "long", "prompt": "Hi", "config": {"max_tokens": 2000}})
        receive(socket)
        assert talker.engine.pages.available < free
        say(socket, {"type": "cancel", "id": "long"})
        assert until_end(socket)[-1]["finish_reason"] == "cancelled"
        assert until(lambda: talker.engine.pages.available == free)
        assert len(watch.late) == 1 and watch.late[0] <= 1


def test_h44_a_message_of_a_mebibyte_is_taken_whole_or_in_many_frames(live: Live) -> None:
    prompt = "a" * (1 << 20)
    message = json.dumps({"type": "generate", "id": 1, "prompt": prompt, "config": CONFIG})
    pieces = [message[at : at + 9_000] for at in range(0, len(message), 9_000)]
    with talk(live) as socket:
        for sent in (message, iter(pieces)):
            socket.send(sent)
            row = receive(socket)  # longer than the context, so only the context refuses it
            assert (row["request_id"], row["error"]["code"]) == (1, 400)
            assert "tokens" in row["error"]["message"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 64,  # frames without a mask, which clients must set
        b"\xff\xff\xff\xff\xff",  # bits that mean nothing
        b"\x81\xff" + b"\xff" * 8,  # a length beyond 63 bits
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_h44_bytes_that_are_no_frames_close_that_connection_alone(live: Live, garbage: bytes) -> None:
    with talk(live) as socket, talk(live) as other:
        socket.socket.sendall(garbage)
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
        say(other, {"type": "Ping"})
        assert receive(other) == {"type": "Pong"}
    assert until(lambda: not live.app.state.sockets)


def test_requests_of_the_protocol_and_frames_of_the_transport_are_answered_during_an_answer(start: Start) -> None:
    live = start(step_s=0.02)
    with talk(live) as socket:
        say(socket, {"type": "generate", "id": "long", "prompt": "Hi", "config": {"max_tokens": 200}})
        receive(socket)
        assert socket.ping().wait(60)
        say(socket, {"type": "notification", "method": "notifications/initialized"})
        say(socket, {"type": "request", "id": 7, "method": "ping"})
        rows = [receive(socket)]
        while rows[-1]["type"] == "token":
            rows.append(receive(socket))
        assert rows[-1] == {"type": "response", "id": 7, "result": {}}


@pytest.mark.soak
def test_h45_a_connection_that_is_only_half_there_is_closed_and_its_request_with_it(start: Start) -> None:
    live = start(step_s=0.05, limits={"connections": 8})
    with talk(live, ping_interval=None) as socket:
        say(socket, {"type": "generate", "id": "long", "prompt": "Hi", "config": {"max_tokens": 4000}})
        receive(socket)
        socket.protocol.receive_data = lambda _: None  # type: ignore[method-assign]  # reads, but never replies
        assert until(lambda: not live.app.state.sockets, 60)
        assert until(lambda: live.loader.talkers[0].idle)


@pytest.mark.soak
def test_a_thousand_idle_connections_cost_little_and_others_are_answered(
    talkers: Path, tmp_path: Path, record_property: Any
) -> None:
    with Process(environ(tmp_path, talkers), "--max-connections", "1100") as served:
        served.ask("POST", "/api/v1/inference/complete", {"prompt": "Hi", "max_tokens": 2})
        before = resident(served.pid)

        async def idle() -> int:
            url = f"ws://127.0.0.1:{served.port}/ws"
            sockets = [await connect_async(url, proxy=None, open_timeout=30) for _ in range(1000)]
            taken = resident(served.pid) - before
            status = await asyncio.to_thread(
                served.ask, "POST", "/api/v1/inference/complete", {"prompt": "Hi", "max_tokens": 2}
            )
            assert status[0] == 200
            await sockets[0].send('{"type": "GetStats"}')
            await sockets[0].recv()  # the welcome
            assert json.loads(await sockets[0].recv())["connections"] == 1000
            await asyncio.gather(*(socket.close() for socket in sockets))
            return taken

        taken = asyncio.run(idle())
        record_property("bytes_of_each", taken // 1000)
        print(f"1,000 idle connections: {taken / 2**20:.1f} MiB, {taken / 1000 / 1024:.1f} KiB each")
        assert taken < 128 << 20


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("politely", [True, False])
def test_h46_whoever_goes_away_takes_its_requests_along(start: Start, politely: bool) -> None:
    live = start(step_s=0.02)
    with talk(live) as socket:
        say(socket, {"type": "generate", "id": "long", "prompt": "Hi", "config": {"max_tokens": 2000}})
        receive(socket)
        if not politely:
            socket.socket.close()
    assert until(lambda: live.loader.talkers[0].idle)
    assert until(lambda: not live.app.state.sockets and live.app.state.open == 0)


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
        '{"type": "generate", "prompt": "x", "config": {"top_k": -2}}',
    ],
)
def test_a_bad_message_is_answered_and_the_connection_stays(live: Live, message: str) -> None:
    with talk(live) as socket:
        say(socket, message)
        row = receive(socket)
        assert (row["type"], row["error"]["code"]) == ("error", 400)
        say(socket, b"\x00\x01")
        assert receive(socket)["code"] == -32600
        say(socket, {"type": "Ping"})
        assert receive(socket) == {"type": "Pong"}


def test_h44_a_frame_that_is_too_large_closes_with_the_code_that_says_so(start: Start) -> None:
    live = start(limits={"max_body_size": 100_000})
    with talk(live) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            say(socket, {"type": "generate", "id": 1, "prompt": "a" * 200_000})
            receive(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (1002, b"\xc1\x80\x00\x00\x00\x00"),  # a bit that only an extension gives a meaning
        (1002, b"\x81\x01a"),  # a frame of a client is masked
        (1007, b"\x81\x81\x00\x00\x00\x00\xff"),  # a text that is no UTF-8
    ],
)
def test_h44_a_wrong_frame_closes_with_its_code(live: Live, code: int, data: bytes) -> None:
    with talk(live) as socket:
        socket.socket.sendall(data)
        with pytest.raises(ConnectionClosed) as closed:
            receive(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == code


def test_h44_nothing_is_compressed_and_a_message_may_come_in_ten_thousand_frames(live: Live) -> None:
    with talk(live, compression="deflate") as socket:
        assert not socket.protocol.extensions
        message = json.dumps({"type": "Ping", "padding": "a" * 10_000})
        socket.send(iter(message))
        assert receive(socket) == {"type": "Pong"}


def test_h44_a_message_of_more_tiny_fragments_than_that_is_refused(live: Live) -> None:
    with talk(live) as socket:
        with suppress(ConnectionClosed):
            socket.send(iter("a" * 14_000))
        with pytest.raises(ConnectionClosed) as closed:
            receive(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    assert until(lambda: live.app.accounts.empty)


def test_h44_tiny_frames_are_read_a_few_at_a_time(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    read, read_frames = Upgraded._read, Upgraded._read_frames

    def count(socket: Upgraded, data: bytes) -> int:
        frames = read(socket, data)
        turns[-1] += frames
        return frames

    def begin(socket: Upgraded) -> None:
        turns.append(0)
        read_frames(socket)

    monkeypatch.setattr(Upgraded, "_read", count)
    monkeypatch.setattr(Upgraded, "_read_frames", begin)
    raw = opened(live)
    raw.send(frame(1, b"a", fin=False) + frame(0, b"a", fin=False) * 9_000 + frame(0, b"a") + frame(PING, b"end"))
    data = b""
    while b"\x8a\x03end" not in data:
        data += raw.read()
    assert until(lambda: sum(turns) == 9_003)
    assert max(turns) <= FRAMES + SLICE // HEADER


def test_h44_messages_that_come_together_are_taken_one_in_a_turn(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, messages = [0], list[int]()
    receive_message = Upgraded.receive

    async def receive_one(socket: Upgraded) -> Any:
        message = await receive_message(socket)
        messages.append(turns[0])
        return message

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Upgraded, "receive", receive_one)
    loop = live.background._listener._loop
    assert loop is not None
    counting = asyncio.run_coroutine_threadsafe(count(), loop)
    raw = opened(live)
    raw.send(frame(1, b"{}") * 1000 + frame(PING, b"end"))
    data = b""
    while b"\x8a\x03end" not in data:
        data += raw.read()
    assert until(lambda: len(messages) == 1001)  # with that of the handshake
    counting.cancel()
    assert len(set(messages)) == len(messages)


def test_h45_pongs_that_nobody_reads_are_few_and_whoever_leaves_them_is_dropped(start: Start) -> None:
    live = start(limits={"unread": 4096, "unread_s": UNREAD_S})
    raw = opened(live, receive_buffer=2048)
    (socket,) = connections(live)
    pings = frame(PING, bytes(125)) * 160_000  # 20 MiB

    def send() -> None:
        with suppress(OSError):  # it is dropped in the middle
            raw.send(pings)

    sending = threading.Thread(target=send)
    sending.start()
    assert until(lambda: socket._output.paused and not socket._listening)
    assert socket._output.transport.get_write_buffer_size() < 4096 + 2 * SLICE
    assert live.ask("GET", "/health")[0] == 200
    assert until(lambda: live.forward(UNREAD_S / 4) or live.app.accounts.empty)
    sending.join()


def test_h34_a_socket_that_is_closed_with_its_answer_unread_is_dropped(start: Start) -> None:
    live = start(script="word " * 20_000, limits={"unread": 4096, "unread_s": UNREAD_S})
    raw = opened(live, receive_buffer=2048)
    (socket,) = connections(live)
    raw.send(frame(1, json.dumps({"prompt": "x", "stream": True, "max_tokens": 4000}).encode()))
    assert until(lambda: socket._output.paused)
    raw.send(frame(CLOSE, b""))
    assert until(lambda: live.forward(UNREAD_S / 4) or live.app.accounts.empty)
    assert until(lambda: live.loader.talkers[0].idle)


def test_h52_an_unfinished_message_is_on_an_account(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.server.app.bound_of_bodies", lambda limits: Bound(100_000, 150_000))
    live = start()
    accounts, unfinished = live.app.accounts, frame(1, bytes(90_000), fin=False)
    first, second = opened(live), opened(live)
    first.send(unfinished)
    assert until(lambda: accounts.out(Resource.BODY_BYTES) >= 90_000)
    second.send(unfinished[:-1])  # a frame that has not ended counts, too
    assert b"\x03\xf5" in second.rest()  # 1013: try again later
    assert live.chat()[0] == 200
    first.send(frame(0, b"")).read(300)
    assert until(lambda: accounts.out(Resource.BODY_BYTES) == 0)
    first.close()
    assert until(lambda: accounts.empty)


def test_h52_a_message_is_on_the_account_of_its_caller_until_it_is_answered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("woolly.server.app.bound_of_bodies", lambda limits: Bound(250_000, 1_000_000))
    live = start()
    live.chat()
    (talker,) = live.loader.talkers
    talker.runner.go.clear()  # nothing is answered
    large = {"type": "generate", "prompt": "x", "padding": "y" * 100_000, "config": {"max_tokens": 2}}
    with talk(live) as socket, talk(live) as other:
        for id_ in range(2):
            say(socket, large | {"id": id_})
        assert until(lambda: live.app.accounts.out(Resource.BODY_BYTES) > 200_000)
        for refused in (socket, other):
            say(refused, large | {"id": 7})
            row = receive(refused)
            assert (row["type"], row["error"]["code"]) == ("error", 503)
        say(other, {"type": "Ping"})
        assert receive(other) == {"type": "Pong"}
        talker.runner.go.set()
        assert {until_end(socket)[-1]["request_id"] for _ in range(2)} == {0, 1}
        assert until(lambda: not live.app.accounts.out(Resource.BODY_BYTES))
        say(other, large | {"id": 7})
        assert until_end(other)[-1]["tokens_generated"] == 2
    assert until(lambda: live.app.accounts.empty)


def test_h52_the_message_of_a_caller_that_goes_is_on_no_account_any_more(live: Live) -> None:
    live.chat()
    (talker,) = live.loader.talkers
    talker.runner.go.clear()
    with talk(live) as socket:
        say(socket, {"type": "generate", "id": 1, "prompt": "x", "padding": "y" * 100_000})
        assert until(lambda: live.app.accounts.out(Resource.BODY_BYTES) > 100_000)
    assert until(lambda: live.app.accounts.empty)
    talker.runner.go.set()


def test_h25_a_message_that_does_not_end_has_the_time_of_a_body(start: Start) -> None:
    live = start(limits={"body_s": BODY_S, "body_rate": 10_000})
    raw = opened(live)
    (socket,) = connections(live)
    raw.send(frame(1, bytes(50_000), fin=False))  # which have five seconds more
    assert until(lambda: socket._size == 50_000)
    live.forward(BODY_S)
    assert socket._size == 50_000
    live.forward(BODY_S)
    assert b"\x03\xf0the message took too long" in raw.rest()  # 1008
    assert until(lambda: live.app.accounts.empty)


def test_h25_messages_that_end_have_a_time_each(start: Start) -> None:
    live = start(limits={"body_s": BODY_S})
    raw = opened(live)
    (socket,) = connections(live)
    begun, answers = frame(1, b"{", fin=False), b""
    raw.send(begun)
    for number in range(5):
        assert until(lambda: socket._size == 1)
        live.forward(BODY_S * 0.7)
        raw.send(frame(0, b"}") + begun)  # never a moment without one that has begun
        while answers.count(b"there is no message") <= number:
            answers += raw.read()
    assert not socket._deaf
    raw.close()


def test_l12_large_messages_are_read_in_a_thread(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, str] = {}

    def noted(what: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            names[what] = threading.current_thread().name
            return work(*args, **named)

        return run

    monkeypatch.setattr(connection, "read_json", noted("a message", connection.read_json))
    monkeypatch.setattr(generation, "read_struct", noted("its fields", generation.read_struct))
    with talk(live) as socket:
        for padding, in_thread in (("", False), ("y" * LARGE, True)):
            names.clear()
            say(socket, {"type": "generate", "id": 1, "prompt": "x", "padding": padding, "config": CONFIG})
            until_end(socket)
            assert {what: name.startswith("woolly-work") for what, name in names.items()} == {
                "a message": in_thread,
                "its fields": in_thread,
            }


def test_h45_a_thousand_pings_and_a_cancel_of_nothing_are_answered(live: Live) -> None:
    with talk(live) as socket:
        pongs = [socket.ping() for _ in range(1000)]
        assert all(pong.wait(60) for pong in pongs)
        say(socket, {"type": "cancel", "id": "nobody"})
        row = receive(socket)
        assert (row["type"], row["error"]["code"]) == ("error", 400)


@pytest.mark.parametrize(("path", "version", "status"), [("/nowhere", 13, 404), ("/ws", 8, 400), ("/health", 13, 404)])
def test_h43_what_is_no_socket_of_ours_is_not_opened(live: Live, path: str, version: int, status: int) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version": str(version),
    }
    assert live.ask("GET", path, headers=headers)[0] == status


@pytest.mark.parametrize(
    "request_",
    [
        HANDSHAKE + b"Content-Length: 1\r\n\r\nx",
        HANDSHAKE + b"Content-Length: 1\r\n\r\n",
        HANDSHAKE + b"Transfer-Encoding: chunked\r\n\r\n",
        HANDSHAKE.replace(b"Key", b"Lock") + b"X: " + b"x" * 9000 + b"\r\n\r\n",
        HANDSHAKE.replace(b"AAAA", b"A") + b"\r\n",
        HANDSHAKE.replace(b": 13", b": 12") + b"\r\n",
        HANDSHAKE.replace(b"GET", b"POST") + b"\r\n",
        HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n",
    ],
)
def test_h43_a_wrong_handshake_is_answered_and_closed(live: Live, request_: bytes) -> None:
    answer = Raw(live.port).send(request_).rest()  # at once: no time passes here that a limit would notice
    assert status(answer) == 400
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert until(lambda: live.app.accounts.empty)
    assert live.ask("GET", "/health")[0] == 200


def test_h43_a_handshake_may_have_a_header_as_long_as_any_request(live: Live) -> None:
    raw = Raw(live.port).send(HANDSHAKE + b"X: " + b"x" * 20_000 + b"\r\n\r\n")
    assert status(raw.read()) == 101


def test_h24_a_handshake_that_does_not_end_has_the_time_of_headers(start: Start) -> None:
    live = start(limits={"header_s": UNREAD_S})
    raw = Raw(live.port).send(HANDSHAKE)
    assert until(lambda: live.app.accounts.out(Resource.CONNECTIONS))
    live.forward(UNREAD_S)
    assert status(raw.rest()) == 408
    assert until(lambda: live.app.accounts.empty)


def test_h26_websockets_and_requests_of_one_address_count_together(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("woolly.server.http.protocol.holder_of", lambda host, port: "198.51.100.7")
    live = start(limits={"connections_per_address": 2})
    sockets = [opened(live), opened(live)]
    assert status(Raw(live.port).rest()) == 503
    sockets.pop().close()
    assert until(lambda: live.ask("GET", "/health")[0] == 200)
    sockets.pop().reset()
    assert until(lambda: live.app.accounts.empty)


def test_a_frame_that_comes_with_the_handshake_is_read_after_it(live: Live) -> None:
    raw = opened(live, frame(1, b'{"type": "Ping"}') + frame(PING, b"here"))
    data = b""
    while b'{"type":"Pong"}' not in data or b"\x8a\x04here" not in data:
        data += raw.read()
    assert data.index(b"welcome") < data.index(b"Pong")


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_h43_a_page_of_another_site_is_not_let_in(live: Live, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None, additional_headers={"Origin": origin}).close()
    assert refused.value.response.status_code == 403


def test_h43_a_key_comes_as_a_header_or_as_a_protocol(start: Start) -> None:
    live = start(keys=(hashlib.sha256(KEY.encode()).digest(),), anonymous=False)
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{live.port}/ws", proxy=None).close()
    assert refused.value.response.status_code == 401
    with talk(live, additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
        say(socket, {"type": "Ping"})
        assert receive(socket) == {"type": "Pong"}
    with talk(live, subprotocols=[f"bearer.{KEY}"]) as socket:
        say(socket, {"type": "Ping"})
        assert receive(socket) == {"type": "Pong"}


def test_the_capital_forms_and_the_bare_prompt_are_answered_in_their_own_way(live: Live) -> None:
    with talk(live) as socket:
        say(socket, {"type": "Generate", "prompt": "Hi", "options": CONFIG})
        *tokens, end = until_end(socket)
        assert "".join(row["text"] for row in tokens) == completed(live, "Hi")
        assert (end["type"], end["tokens_generated"]) == ("GenerationComplete", 6)
        say(socket, {"type": "Generate", "prompt": ""})
        assert receive(socket)["type"] == "Error"
        say(socket, {"prompt": "Hi", "stream": True, **CONFIG})
        assert "".join(row["content"] for row in until_end(socket)[:-1]) == completed(live, "Hi")
        say(socket, {"type": "GetStats"})
        assert receive(socket)["connections"] == 1


def test_a_session_goes_on_over_a_socket(live: Live) -> None:
    session = live.ask("POST", "/api/v1/sessions", {})[2]["session_id"]
    with talk(live) as socket:
        message = {"type": "chat", "id": 1, "messages": [{"role": "user", "content": "Hi"}], "session_id": session}
        say(socket, message | {"config": CONFIG})
        until_end(socket)
    assert live.ask("GET", f"/api/v1/sessions/{session}")[2]["message_count"] == 2
