"""HTTP/1.1 on one connection, with a bound on everything that a client causes before anybody knows who it is.

A connection counts from its accept on, with TLS or without, until it is lost or handed on as a WebSocket. The time and
the bytes of handshakes, headers and bodies are limited. A client that exceeds a limit gets the status that says so, and
its connection is closed; where an answer has begun or is owed, the error would be taken for a part of that one, so the
connection is cut off. An error that is sent before the whole body has come waits a moment for the rest of it: if a
socket is closed with bytes unread, the other side loses the answer.

Requests are read one at a time. What a client sends behind a request waits unparsed until that one is answered, and
only so much of it: it costs no more than its bytes, its errors come in their turn, and so does its time. The connection
is read on meanwhile, so that a client which leaves is noticed at once.

"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

import httptools
import msgspec

from woolly.config.serving import Serving
from woolly.errors import BusyError, RequestError, WoollyError, printable, shortage
from woolly.server.accounts import Accounts, Grant, Resource, holder_of
from woolly.server.http.errors import reply as error_reply
from woolly.server.http.exchange import STATUS_LINES, Asgi, ConnectionSet, Exchange, Headers
from woolly.server.http.head import Address, Head
from woolly.server.http.output import Output
from woolly.server.http.pieces import Pieces
from woolly.server.http.request import Scope
from woolly.server.http.sips import sip
from woolly.server.http.upgraded import HandshakeError, Opening, Upgraded

PIPELINED = 64 << 10  # bytes that may wait behind a request that is being answered
PIECES = 16  # that are parsed in one turn of the event loop: then others have theirs
FEW, TINY = 1000, 64  # pieces of a body that are never too many, and bytes of one more beyond that, on average
UNREAD = 64 << 10  # bytes of a body that the app has not taken, beyond which no more is read
WRAPPING = 64 << 10  # bytes around a body's chunks that are never too many
LINGER_S = 1.0  # for which the rest of a body is read and thrown away, up to the size that a body may have


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a server share. shape: the body of an error that belongs to no request, for a client
    that asked for this path."""

    limits: Serving
    accounts: Accounts
    shape: Callable[[str, WoollyError], object]
    tls: ssl.SSLContext | None = None


class Connection(asyncio.Protocol):
    def __init__(self, shared: Shared, app: Asgi, state: ConnectionSet) -> None:
        self.transport: asyncio.Transport
        self.output: Output
        self.exchange: Exchange | None = None  # the request that is being read or answered
        self._shared, self._limits, self._app, self._state = shared, shared.limits, app, state
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._client: Address = None
        self._server: Address = None
        self._grant: Grant | None = None
        self._unread: Grant  # what it has been sent and has not taken
        self._handshake: asyncio.Task[None] | None = None  # of TLS, while it goes on
        self._timer: asyncio.TimerHandle | None = None
        self._unparsed = b""
        self._turn: asyncio.Handle | None = None  # in which more of it is parsed
        self._pieces = Pieces()
        self._reading = True
        self._heading = False  # a request's headers are awaited or being read
        self._head_bytes = 0
        self._wire = self._payload = 0  # bytes of a body as they came, and without the signs around its chunks
        self._fed = 0  # pieces of it
        self._lingering = 0  # bytes that are still read, and thrown away, before the connection is closed
        self._upgrade = False
        self._head = Head(self._limits)

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._client, self._server = _address(transport, "peername"), _address(transport, "sockname")
        holder = holder_of(*self._client) if self._client else ""
        self._unread = self._shared.accounts.take(holder, Resource.UNREAD_BYTES, 0)
        self._write_to(transport)
        try:
            self._grant = self._shared.accounts.take(holder, Resource.CONNECTIONS)
        except BusyError as error:
            if self._shared.tls is None:  # a handshake only to tell this would cost more than it is worth
                self.output.write(self._error(error))
            self.output.close()
            return
        self._state.connections.add(self)
        if self._shared.tls is None:
            self._await_head()
        else:
            transport.pause_reading()
            self._handshake = self._start(self._secure(transport, self._shared.tls))

    def _write_to(self, transport: asyncio.Transport) -> None:
        self.transport, self.output = transport, Output(transport, self._limits, self._unread)

    async def _secure(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """The handshake of TLS has the time of the headers."""
        transport = None
        self._loop.call_soon(sip, plain)  # when the handshake has begun, and before anything is read
        try:
            transport = await self._loop.start_tls(
                plain, self, tls, server_side=True, ssl_handshake_timeout=self._limits.header_s
            )
        except OSError:  # of the handshake, or of its time
            pass
        finally:
            self._handshake = None
            if transport is None:  # nobody tells the protocol that such a connection is lost
                plain.abort()
                self.connection_lost(None)
        if transport is not None and not transport.is_closing():
            self._write_to(transport)
            self._await_head()
            self._parse()  # what came while this task waited for its turn

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is at the other side any more: the request that runs ends, and nothing stays behind."""
        self._disarm()
        self._unparsed = b""
        if self._turn is not None:
            self._turn.cancel()
        self._state.connections.discard(self)
        if self._grant is not None:
            self._grant.give_back()
        self.output.lost()
        if self.exchange is not None:
            self.exchange.leave()

    def shutdown(self) -> None:
        """The server ends: an answer that runs is completed."""
        if self._handshake is not None:
            self._handshake.cancel()
        elif self.exchange is None or self.exchange.complete:
            self._close()
        else:
            self.exchange.keep_alive = False

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        return task

    # What comes

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._lingering = max(self._lingering - len(data), 0)
            if not self._lingering:
                self._close()
        elif not self.transport.is_closing():
            self._unparsed += data
            if self._handshake is None and self._turn is None:
                self._parse()

    def _parse(self) -> None:
        """Give the parser what came, up to the end of a request; what stands behind it waits. Of much that comes in
        small pieces, the rest has turns of its own, and nothing more comes until then."""
        self._turn = None
        data, at, pieces = self._unparsed, 0, 0
        view = memoryview(data)
        while at < len(data) and pieces < PIECES and self._may_parse():
            pieces += 1
            if self.exchange is None and not self._heading:
                self._await_head()
            end = self._pieces.end(data, at)
            self._feed(view[at:end])
            at = end
            if self.exchange is not None and self.exchange.complete and not self.exchange.more_body:
                self.exchange = None
        self._unparsed = data[at:]
        if self._lingering or self.transport.is_closing():
            self._unparsed = b""
        elif self._upgrade:
            self._read_on()
            self._hand_on()
            return
        elif self._unparsed and self._may_parse():
            self._turn = self._loop.call_soon(self._parse)
            self._read_no_more()
            return
        elif len(self._unparsed) > PIPELINED:
            self.transport.abort()  # an error would be read as the answer that is owed
        elif self.exchange is None and not self._heading:
            self._arm(self._limits.keep_alive_s, self._close)
        if self.exchange is None or self.exchange.unread <= UNREAD:
            self._read_on()

    def _may_parse(self) -> bool:
        if self._lingering or self._upgrade or self.transport.is_closing():
            return False
        return self.exchange is None or self.exchange.more_body

    def _feed(self, piece: memoryview) -> None:
        exchange = self.exchange
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._upgrade = self.exchange is None  # else it is another protocol, and the request was read as it is
        except httptools.HttpParserError as error:
            cause = error.__context__  # what one of the functions below has raised
            refusal = cause if isinstance(cause, WoollyError) else shortage(cause, "this request")
            self._refuse(refusal or RequestError("this is no valid HTTP request"))
            return
        if exchange is not None:
            self._wire += len(piece)
            self._fed += 1
            if self._wire > 2 * self._payload + WRAPPING or TINY * (self._fed - FEW) > self._wire:  # dear to us alone
                self._refuse(RequestError("the chunks of the body are too small, or have too much around them"))
            elif exchange.complete and self._wire > self._limits.max_body_size:  # nobody reads it
                self._close()
        elif self._heading:
            self._head_bytes += len(piece)
            if self._head_bytes > self._limits.headers:
                self._refuse(self._head.too_large())

    # The parser

    def on_message_begin(self) -> None:
        self._head = Head(self._limits)

    def on_url(self, url: bytes) -> None:
        self._head.add_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head.count(name, value)
        if self.exchange is None:  # else behind a body in chunks: nobody reads those
            self._head.add(name, value)

    def on_headers_complete(self) -> None:
        self._wire = self._payload = self._fed = 0
        upgrades = self._parser.should_upgrade()
        self._head.check(upgrades=upgrades)
        if upgrades and self._head.asks_for_socket:
            return
        length = self._head.length
        self._heading = False
        self._pieces.begin(length, chunked=self._head.chunked)
        self.exchange = Exchange(
            self._scope("http"),
            self.output,
            keep_alive=self._parser.get_http_version() != "1.0" and self._parser.should_keep_alive(),
            expects=self._head.expects,
            common=self._common,
            wants=self._read_on,
            ended=self._ended,
        )
        most = max(self._limits.max_body_size, self._limits.file_bytes)
        self._arm(self._limits.body_s + min(length, most) / self._limits.body_rate, self._slow_body)
        self._start(self.exchange.run(self._app))

    def on_body(self, body: bytes) -> None:
        self._payload += len(body)
        assert self.exchange is not None
        self.exchange.feed(body)
        if self.exchange.unread > UNREAD:
            self._read_no_more()

    def on_message_complete(self) -> None:
        if self.exchange is not None:
            self._disarm()
            self.exchange.end_body()

    def _scope(self, kind: Literal["http", "websocket"]) -> Scope:
        secure = self._shared.tls is not None
        return self._head.scope(kind, self._parser, client=self._client, server=self._server, secure=secure)

    # An answer

    def _common(self) -> Headers:
        return self._state.default_headers

    def _read_on(self) -> None:
        if not self._reading and self._turn is None and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()

    def _read_no_more(self) -> None:
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()

    def _ended(self) -> None:
        """The answer is complete, or its end will never come."""
        exchange = self.exchange
        if exchange is None or self._lingering or self.transport.is_closing():
            return
        self._read_on()
        if not exchange.complete or not exchange.keep_alive:
            if exchange.more_body:
                self._linger()
            else:
                self._close()
        elif not exchange.more_body:
            self.exchange = None
            self._parse()

    # A WebSocket

    def _hand_on(self) -> None:
        """Become a WebSocket. The time of the headers goes on until its handshake is answered."""
        assert self._timer is not None and self._grant is not None
        scope = self._scope("websocket")
        try:
            opening = Opening(scope)
        except HandshakeError as error:
            self._refuse(RequestError(f"this does not open a WebSocket: {printable(error)}"))
            return
        socket = Upgraded(
            opening,
            self.output,
            grant=self._grant,
            memory=self._shared.accounts.take(self._grant.holder, Resource.BODY_BYTES, 0),
            limits=self._limits,
            state=self._state,
            deadline_s=self._timer.when(),
            early=self._unparsed,
        )
        self._disarm()
        self._state.connections.discard(self)
        socket.begin(self._app, scope)

    # Limits

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        self._disarm()
        self._timer = self._loop.call_later(seconds, then)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_head(self) -> None:
        self._heading, self._head_bytes = True, 0
        self._pieces.begin()
        self._arm(self._limits.header_s, self._slow_head)

    def _slow_head(self) -> None:
        if self._head_bytes:
            self._refuse(RequestError("the headers took too long", code="request_timeout"))
        else:
            self._close()

    def _slow_body(self) -> None:
        self._refuse(RequestError("the body took too long", code="request_timeout"))

    def _refuse(self, error: WoollyError) -> None:
        """Answer with an error and close, without the app."""
        if self.exchange is not None:
            self.exchange.leave()
            if self.exchange.started or not self.exchange.more_body:
                self.transport.abort()
                return
        self.output.write(self._error(error))
        self._linger()

    def _error(self, error: WoollyError) -> bytes:
        reply = error_reply(error, self._shared.shape(self._head.url.decode("latin-1"), error))
        body = msgspec.json.encode(reply.body)
        lines = [STATUS_LINES[reply.status], b"content-type: application/json\r\nconnection: close\r\n"]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in reply.headers.items()]
        return b"".join((*lines, b"content-length: %d\r\n\r\n" % len(body), body))

    def _linger(self) -> None:
        """Close the connection when the client has sent what it was sending, or after a moment."""
        self._lingering = self._limits.max_body_size
        if self.transport.can_write_eof():  # TLS cannot; there the length of the answer tells its end
            self.transport.write_eof()
        self._read_on()
        self._arm(LINGER_S, self._close)

    def _close(self) -> None:
        self._disarm()
        self.output.close()


def _address(transport: asyncio.Transport, name: str) -> Address:
    """One end of a connection; None where it has no address, as sockets in the file system."""
    info = transport.get_extra_info(name)
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) else None
