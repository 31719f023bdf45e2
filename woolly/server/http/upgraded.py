"""A connection that has become a WebSocket, as ASGI has it.

The handshake was read as a request of HTTP, and is answered by the app within the time of its headers. Frames are read
a few at a time, so that a client which sends tiny ones has its own turns only; none are read while the app has a
message to take, or while the other side does not read what it is sent, pongs too. A message of too many tiny fragments
is refused; its bytes are on the account of whoever holds the connection until the app takes it, and it has the time
that a body has. A connection whose message is refused stays open for a moment, so that the other side is told why.
"""

from __future__ import annotations

import asyncio
import secrets

from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from woolly.config.serving import Serving
from woolly.errors import BusyError
from woolly.server.accounts import Grant
from woolly.server.http.exchange import STATUS_LINES, Asgi, ConnectionSet
from woolly.server.http.output import Output
from woolly.server.http.request import Message, Scope

SLICE = 1 << 10  # bytes that are read at once: of the smallest frames, 170
FRAMES = 64  # after which others have their turn
MUCH = 64 << 10  # bytes of a message, beyond which the next is not read while the app is busy with it
HEADER = 6  # bytes before the content of a small frame
WRAPPING = 64 << 10  # bytes of headers in one message that are never too many
PING_S = 20.0  # between two pings; where one was not answered by the next, the connection ends
LINGER_S = 1.0  # for which the other side may read why its message was refused
CLOSE_S = 10.0  # for which the other side may close, too
LOST, BAD_TEXT, POLICY, FAULT, RESTART, LATER = 1006, 1007, 1008, 1011, 1012, 1013  # codes of a close


class HandshakeError(Exception):
    """The request does not open a WebSocket."""


class Opening:
    """The answer to a handshake; raises HandshakeError where the request is none."""

    def __init__(self, scope: Scope) -> None:
        if scope["method"] != "GET" or scope["http_version"] != "1.1":
            raise HandshakeError("it begins with GET, over HTTP/1.1")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        self._protocol = ServerProtocol()
        self._response: Response = self._protocol.accept(Request(scope["path"], Headers(headers)))
        if self._response.status_code != 101:
            raise HandshakeError(str(self._protocol.handshake_exc))

    def accept(self, subprotocol: str | None) -> bytes:
        if subprotocol:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        self._protocol.send_response(self._response)
        return b"".join(self._protocol.data_to_send())


class Upgraded(asyncio.Protocol):
    """grant: of the connection, which is given back with it. memory: of what it has sent and the app has not taken.
    deadline_s: of the handshake, as the loop counts. early: what came behind the handshake."""

    def __init__(
        self,
        opening: Opening,
        output: Output,
        *,
        grant: Grant,
        memory: Grant,
        limits: Serving,
        state: ConnectionSet,
        deadline_s: float,
        early: bytes,
    ) -> None:
        self._opening, self._output, self._state = opening, output, state
        self._grant, self._memory = grant, memory
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._frames = ServerProtocol(state=State.OPEN, max_size=limits.max_body_size)
        self._messages: asyncio.Queue[Message] = asyncio.Queue()  # that the app has not taken
        self._open = False  # the handshake is answered
        self._over = False  # nothing more is sent
        self._deaf = False  # what comes is thrown away
        self._refusal: Message | None = None  # the begin of an answer that opens nothing
        self._unread = early
        self._turn: asyncio.Handle | None = None  # in which more of it is read
        self._listening = True
        self._is_text = False
        self._pieces: list[bytes] = []  # of the message that is coming
        self._size = 0  # of those
        self._unfinished = 0  # bytes since the last frame that ended
        self._untaken = 0  # bytes of messages that wait for the app
        self._busy = False  # the app has a message with which it has much to do, and does not wait for another
        self._late: asyncio.TimerHandle | None = None  # ends the time of the message that is coming
        self._begun_s = 0.0  # when that began
        self._ping: bytes | None = None  # that was not answered yet
        self._timer = self._loop.call_at(deadline_s, output.close)  # of the handshake, then of pings
        self._closing: asyncio.TimerHandle | None = None

    def begin(self, app: Asgi, scope: Scope) -> None:
        self._state.connections.add(self)
        self._output.transport.set_protocol(self)
        self._read_on()
        self._messages.put_nowait({"type": "websocket.connect"})
        task = self._loop.create_task(self._run(app, scope))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    # The connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = self._deaf = True
        self._timer.cancel()
        for handle in (self._turn, self._closing, self._late):
            if handle is not None:
                handle.cancel()
        self._state.connections.discard(self)
        self._unread, self._pieces = b"", []
        self._memory.give_back()
        self._grant.give_back()
        self._output.lost()
        self._leave(LOST)

    def pause_writing(self) -> None:
        self._output.pause()
        self._read_on()

    def resume_writing(self) -> None:
        self._output.resume()
        self._read_on()

    def shutdown(self) -> None:
        """The server ends."""
        if self._open and not self._over:
            self._frames.send_close(RESTART)
            self._leave(RESTART)
        self._output.close()

    # What comes

    def data_received(self, data: bytes) -> None:
        if not self._deaf:
            self._unread += data
            if self._turn is None:
                self._read_frames()

    def _may_read(self) -> bool:
        """Whether a frame may be read now; after our close only the other side's is waited for."""
        if self._deaf or not self._open or self._output.paused:
            return False
        return self._over or (self._messages.empty() and not self._busy)

    def _read_on(self) -> None:
        """Read what waits in a turn of its own, and only then let more come."""
        ready = self._may_read()
        if ready and self._unread and self._turn is None:
            self._turn = self._loop.call_soon(self._read_frames)
        listening = self._deaf or (ready and not self._unread)
        if listening != self._listening and not self._output.transport.is_closing():
            self._listening = listening
            if listening:
                self._output.transport.resume_reading()
            else:
                self._output.transport.pause_reading()

    def _read_frames(self) -> None:
        self._turn = None
        frames = at = 0
        while at < len(self._unread) and frames < FRAMES and self._may_read():
            frames += self._read(self._unread[at : at + SLICE])
            at += SLICE
        self._unread = b"" if self._deaf else self._unread[at:]
        self._read_on()

    def _read(self, data: bytes) -> int:
        """Read some bytes; how many frames ended in them."""
        self._frames.receive_data(data)
        frames = self._frames.events_received()
        for frame in frames:
            assert isinstance(frame, Frame)
            self._take(frame)
        if self._frames.parser_exc is not None and not self._deaf:
            self._refused()
        self._unfinished = 0 if frames else self._unfinished + len(data)
        try:
            self._memory.resize(0 if self._deaf else self._untaken + self._size + self._unfinished)
        except BusyError as error:
            self._refuse(LATER, str(error))
        self._time()
        self._flush()
        return len(frames)

    def _time(self) -> None:
        """Give a message that has begun its time, from when it has."""
        coming = not self._deaf and self._size + self._unfinished > 0
        if coming and self._late is None:
            self._begun_s = self._loop.time()
            self._late = self._loop.call_later(self._limits.body_s, self._look)
        elif not coming and self._late is not None:
            self._late.cancel()
            self._late = None

    def _look(self) -> None:
        """Refuse a message that takes too long: it has a second more for each `body_rate` that came, and what it waits
        here for the app does not count."""
        now = self._loop.time()
        late_s = self._begun_s + self._limits.body_s + (self._size + self._unfinished) / self._limits.body_rate
        if not self._listening:
            late_s = now + self._limits.body_s
        if now < late_s:
            self._late = self._loop.call_at(late_s, self._look)
        else:
            self._refuse(POLICY, "the message took too long")

    def _take(self, frame: Frame) -> None:
        if self._deaf:
            return
        if frame.opcode is Opcode.PONG:
            if self._ping == frame.data:
                self._ping = None
        elif frame.opcode is Opcode.CLOSE:
            code = self._frames.close_rcvd.code if self._frames.close_rcvd is not None else LOST
            self._deaf = True
            self._leave(code)
            self._output.close()
        elif frame.opcode is not Opcode.PING:  # which is answered with what is flushed
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._pieces.append(bytes(frame.data))
            self._size += len(frame.data)
            if frame.fin:
                self._deliver()
            elif HEADER * len(self._pieces) > self._size + WRAPPING:
                self._refuse(POLICY, "the fragments of the message are too small")

    def _deliver(self) -> None:
        data = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._over:
            return
        self._untaken += len(data)
        try:
            content = {"text": data.decode()} if self._is_text else {"bytes": data}
        except UnicodeDecodeError:
            self._refuse(BAD_TEXT, "a text is UTF-8")
        else:
            self._messages.put_nowait({"type": "websocket.receive", **content})

    def _refuse(self, code: int, reason: str) -> None:
        self._frames.fail(code, reason)
        self._refused()

    def _refused(self) -> None:
        """The frames have failed: the other side is told why, for a moment."""
        self._deaf = True
        self._pieces, self._size = [], 0
        self._memory.give_back()
        self._leave(self._frames.close_sent.code if self._frames.close_sent is not None else LOST)
        self._closing = self._loop.call_later(LINGER_S, self._output.close)

    def _leave(self, code: int) -> None:
        """Send what is left to send, and nothing after it; the app is told."""
        self._flush()
        self._over = True
        self._messages.put_nowait({"type": "websocket.disconnect", "code": code})

    def _beat(self) -> None:
        if self._over:
            return
        if self._ping is None:
            self._ping = secrets.token_bytes(4)
            self._frames.send_ping(self._ping)
            self._flush()
            self._timer = self._loop.call_later(PING_S, self._beat)
        else:
            self._frames.fail(FAULT, "keepalive ping timeout")
            self._leave(FAULT)
            self._output.close()

    def _flush(self) -> None:
        data = b"".join(self._frames.data_to_send())
        if data:
            self._output.write(data)

    # The app

    async def _run(self, app: Asgi, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except ConnectionError:  # the client left while the app spoke
            pass
        finally:
            if self._closing is None:
                self._output.close()

    async def receive(self) -> Message:
        await asyncio.sleep(0)  # others have their turn between two messages that came together
        if self._busy:
            self._busy = False
            self._read_on()
        message = await self._messages.get()
        if not self._deaf and self._messages.empty():
            self._busy = self._untaken > MUCH
            self._untaken = 0
            self._memory.resize(self._size + self._unfinished)
        self._read_on()
        return message

    async def send(self, message: Message) -> None:
        await self._output.writable()
        if self._over:
            raise ConnectionError("the client has gone")
        match message["type"]:
            case "websocket.accept":
                self._output.write(self._opening.accept(message["subprotocol"]))
                self._open = True
                self._timer.cancel()
                self._timer = self._loop.call_later(PING_S, self._beat)
                self._read_on()
            case "websocket.send":
                self._frames.send_text(message["text"].encode())
                self._flush()
            case "websocket.close":
                self._frames.send_close(message["code"])
                self._leave(message["code"])
                self._closing = self._loop.call_later(CLOSE_S, self._output.close)
                self._read_on()
            case "websocket.http.response.start":
                self._refusal = message
            case "websocket.http.response.body":
                assert self._refusal is not None
                self._output.write(self._head(self._refusal) + message["body"])
                self._over = True
                self._output.close()

    def _head(self, start: Message) -> bytes:
        """The head of an answer that opens no WebSocket."""
        headers = (*self._state.default_headers, *start["headers"], (b"connection", b"close"))
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return STATUS_LINES[start["status"]] + lines + b"\r\n"
