"""The HTTP protocol with limits that uvicorn's own does not have.

The time and the bytes of headers and bodies are limited, and so is the number of connections. A client that exceeds a
limit gets the status that says so, and its connection is closed. When a client goes away, the request that runs ends,
not only the last one that was sent. A client that reads nothing of an answer for too long is dropped, with the answer;
one that is slow is waited for. An error that is sent before the whole body has come waits a moment for the rest of it:
if a socket is closed with bytes unread, the other side loses the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from woolly.config.serving import SERVING, Serving
from woolly.errors import BusyError, RequestError, WoollyError
from woolly.server.http.errors import reply as error_reply
from woolly.server.settings import is_loopback

PIPELINED = 8  # requests that may wait on one connection
WRAPPING = 64 << 10  # bytes around a body's chunks that are never too many
LINGER_S = 1.0  # for which the rest of a body is read and thrown away, up to the size that a body may have


class Connection(HttpToolsProtocol):
    """A connection. `protocol` makes subclasses with the limits of a server and the shape of its errors."""

    limits: Serving = SERVING

    @staticmethod
    def shape(path: str, error: WoollyError) -> object:
        """The body of an error that belongs to no request, for a client that asked for this path."""
        return str(error)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._heading = False  # a request's headers are being read
        self._taken = 0  # bytes of headers
        self._wire = self._payload = 0  # bytes of a body as they came, and without the signs around its chunks
        self._refusal: WoollyError | None = None
        self._lingering = 0  # bytes that are still read, and thrown away, before the connection is closed
        self._running: RequestResponseCycle | None = None
        self._watch: asyncio.TimerHandle | None = None  # of a reader that is behind
        self._left = 0  # bytes that it had not taken at the last look
        self._taken_s = 0.0  # when they had become fewer
        self.url = b""
        self.address = ""

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.limits.unread)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # else megabytes would lie in the kernel for a reader that never reads
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.unread)
        address = self.client[0] if self.client else ""
        alike = sum(1 for other in self.connections if isinstance(other, Connection) and other.address == address)
        self.address = address
        beyond = not is_loopback(address) and alike >= self.limits.connections_per_address
        if len(self.connections) > self.limits.connections or beyond:
            self._refuse(BusyError("too many connections", code="overloaded", retry_after=1))
            self._close()
            return
        self._heading = True
        self._arm(self.limits.header_s, self._slow_headers)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        super().connection_lost(exc)
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._lingering:
            self._lingering = max(self._lingering - len(data), 0)
            if not self._lingering:
                self._close()
            return
        if not self._heading and self.cycle is not None and not self.cycle.more_body and self._timer is None:
            self._heading = True  # the first byte of the next request
            self._taken = 0
            self._arm(self.limits.header_s, self._slow_headers)
        before = self.cycle
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._heading:
            self._taken += len(data)
            if self._taken > self.limits.headers:
                self._refuse(self._long_url() if len(self.url) > self.limits.request_line else _headers_too_large())
        elif before is not None and before is self.cycle and before.more_body:
            self._wire += len(data)
            if self._wire > 2 * self._payload + WRAPPING:  # each chunk costs us more than its sender
                self._refuse(RequestError("the chunks of the body are too small, or have too much around them"))

    # The parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._count = 0
        self._fields = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.request_line:
            self._stop(self._long_url())

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._count += len(name) + len(value) + 4
        if self._fields > self.limits.header_fields or self._count + len(self.url) > self.limits.headers:
            self._stop(_headers_too_large())
        super().on_header(name, value.strip(b" \t"))  # the parser leaves what stands behind a value

    def on_body(self, body: bytes) -> None:
        self._payload += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._heading = False
        self._disarm()
        self._wire = self._payload = 0
        if not self.url.startswith(b"/"):  # a whole URI names a host beside the one in `Host`, and one of them is a lie
            self._stop(RequestError("the address in a request line begins with a slash"))
        super().on_headers_complete()
        length = next((int(v) for k, v in self.headers if k == b"content-length" and v.isdigit()), 0)
        self._arm(
            self.limits.body_s
            + min(length, max(self.limits.max_body_size, self.limits.file_bytes)) / self.limits.body_rate,
            self._slow_body,
        )
        if self.pipeline and len(self.pipeline) < PIPELINED:
            self.flow.resume_reading()  # else nobody would notice that the client goes away

    def on_message_complete(self) -> None:
        self._disarm()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.transport = _Closing(self)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        self._disarm()
        super().handle_websocket_upgrade()

    # Limits

    def _arm(self, seconds: float, then: Any) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _slow_headers(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # pipelined behind an answer that is still being sent
        if self.url or self._taken:
            self._refuse(RequestError("the headers took too long", code="request_timeout"))
        else:
            self._close()

    def _slow_body(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_started:
            self._refuse(RequestError("the body took too long", code="request_timeout"))
        else:
            self._close()

    # Unread answers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def on_response_complete(self) -> None:
        if self._lingering:
            return
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_reader()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_reader()

    def linger(self) -> None:
        """Close the connection when the client has sent what it was sending, or after a moment."""
        if self._lingering or self.transport.is_closing():
            return
        self._lingering = self.limits.max_body_size
        self._heading = False
        if self.transport.can_write_eof():  # TLS cannot; there the length of the answer tells its end
            self.transport.write_eof()
        self.flow.resume_reading()
        self._arm(LINGER_S, self._close)

    def _close(self) -> None:
        self._disarm()
        self.transport.close()
        self._watch_reader()

    def _watch_reader(self) -> None:
        """Watch a buffer that gets nothing more: it waits for its reader, or to be empty before the close."""
        if not self.transport.get_write_buffer_size():
            return
        self._left, self._taken_s = self._unread(), time.monotonic()
        if self._watch is None:
            self._watch = self.loop.call_later(self.limits.unread_s / 4, self._look)

    def _look(self) -> None:
        """Drop the connection if the reader has taken nothing for too long."""
        self._watch = None
        if not self.transport.get_write_buffer_size() or not (self.flow.write_paused or self.transport.is_closing()):
            return
        left, now = self._unread(), time.monotonic()
        if left < self._left:
            self._left, self._taken_s = left, now
        if now - self._taken_s < self.limits.unread_s:
            self._watch = self.loop.call_later(self.limits.unread_s / 4, self._look)
        else:
            self.transport.abort()

    def _unread(self) -> int:
        """Bytes that the other side has not taken: in the buffer of the process, and in the kernel's."""
        sock, queued = self.transport.get_extra_info("socket"), 0
        if sock is not None and sock.fileno() >= 0 and sys.platform == "linux":
            with contextlib.suppress(OSError):
                queued = int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return self.transport.get_write_buffer_size() + queued

    def _stop(self, error: WoollyError) -> None:
        """Leave the parser by an error, upon which it calls `send_400_response`, which refuses."""
        self._refusal = error
        raise ValueError(error.code)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or RequestError("this is no valid HTTP request"))

    def _refuse(self, error: WoollyError) -> None:
        """Answer with an error and close, without the app."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # in the middle of another answer: no status can be sent any more
            return
        reply = error_reply(error, self.shape(self.url.decode("latin-1"), error))
        body = msgspec.json.encode(reply.body)
        lines = [STATUS_LINE[reply.status], b"content-type: application/json\r\nconnection: close\r\n"]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in reply.headers.items()]
        lines += [b"content-length: %d\r\n\r\n" % len(body), body]
        self.transport.write(b"".join(lines))
        self.linger()

    def _long_url(self) -> WoollyError:
        return RequestError(f"the address has more than {self.limits.request_line:,} bytes", code="uri_too_long")


class Upgraded(WebSocketsSansIOProtocol):
    """A WebSocket. One whose message is refused is read on for a moment, so that the other side is told why."""

    _refused = False

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        assert self.conn.close_sent is not None
        self._refused = self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": self.conn.close_sent.code})
        self.transport.write(b"".join(self.conn.data_to_send()))
        # This timer is uvicorn's own: while it runs, the end of the handler does not close the connection, which would
        # take the reason with it.
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)


class _Closing:
    """The transport as an answer sees it: to close it is to let the client finish its request first.

    What is written after the client has gone is dropped: asyncio would tell of it on standard error.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)

    def write(self, data: bytes) -> None:
        if not self._connection.transport.is_closing():
            self._connection.transport.write(data)

    def close(self) -> None:
        cycle = self._connection.cycle
        if cycle is not None and cycle.more_body:
            self._connection.linger()
        else:
            self._connection.transport.close()


def _headers_too_large() -> WoollyError:
    return RequestError("the headers are too large", code="headers_too_large")


def protocol(limits: Serving, shape: Callable[[str, WoollyError], object]) -> type[Connection]:
    """Connections with these limits. shape: of an error that belongs to no request, by the path that was asked for."""
    return type("Connection", (Connection,), {"limits": limits, "shape": staticmethod(shape)})
