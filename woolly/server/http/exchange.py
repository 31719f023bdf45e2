"""One request and its answer on a connection, as ASGI has them: `receive` gives the body, `send` writes the answer."""

from __future__ import annotations

import asyncio
import http
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeAlias

from woolly.server.http.output import Output
from woolly.server.http.request import Message, Receive, Scope, Send

Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class ConnectionSet(Protocol):
    """The connections of a server and their tasks, which it waits for at its end; the headers of all answers."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    default_headers: list[tuple[bytes, bytes]]


class Exchange:
    """common: headers of every answer. wants: called when the app waits for more of the body. ended: called when the
    answer is complete, or will never be."""

    __slots__ = (
        "_body",
        "_chunked",
        "_common",
        "_ended",
        "_expects",
        "_head",
        "_left",
        "_news",
        "_output",
        "_wants",
        "complete",
        "gone",
        "keep_alive",
        "more_body",
        "scope",
        "started",
    )

    def __init__(
        self,
        scope: Scope,
        output: Output,
        *,
        keep_alive: bool,
        expects: bool,
        common: Callable[[], Headers],
        wants: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.more_body = True  # the end of the body has not come
        self.started = False
        self.complete = False
        self.gone = False  # nobody waits for the answer any more
        self._output = output
        self._expects = expects  # the client sends its body when it is told to
        self._common, self._wants, self._ended = common, wants, ended
        self._body = bytearray()
        self._news = asyncio.Event()
        self._head = b""  # not sent yet
        self._chunked = False
        self._left = 0  # bytes that the answer has promised and not sent

    @property
    def unread(self) -> int:
        """Bytes of the body that the app has not taken."""
        return len(self._body)

    def feed(self, piece: bytes) -> None:
        """More of the body. Once there is an answer, nobody reads it."""
        if not self.complete:
            self._body += piece
            self._news.set()

    def end_body(self) -> None:
        self.more_body = False
        self._news.set()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self._news.set()

    async def run(self, app: Asgi) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            if not self.complete and not self.gone:
                self._ended()

    async def receive(self) -> Message:
        if self._expects:
            self._output.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects = False
        if not self.gone and not self.complete:
            self._wants()
            await self._news.wait()
            self._news.clear()
        if self.gone or self.complete:
            return {"type": "http.disconnect"}
        piece, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": piece, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        if self._output.paused and not self.gone:
            await self._output.writable()
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._write(message["body"], message["more_body"])

    def _begin(self, status: int, headers: Headers) -> None:
        assert not self.started
        self.started, self._expects = True, False
        lines = [STATUS_LINES[status]]
        sized = self.scope["method"] == "HEAD" or status in (204, 304)
        for raw_name, value in (*self._common(), *headers):
            name = raw_name.lower()
            if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
                raise ValueError("a header has characters that would end it")
            if name == b"content-length":
                sized, self._left = True, int(value)
            elif name == b"connection" and value == b"close":
                self.keep_alive = False
                continue
            lines += [name, b": ", value, b"\r\n"]
        self._chunked = not sized
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self._head = b"".join(lines)
        if self._chunked:  # else its first bytes follow at once, in the same packet
            self._output.write(self._head)
            self._head = b""

    def _write(self, body: bytes, more: bool) -> None:
        assert self.started and not self.complete
        if self.scope["method"] == "HEAD":
            body, self._left = b"", 0
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise ValueError("the answer has not the length that its header tells")
        if self._head or body:
            self._output.write(self._head + body)
            self._head = b""
        if not more:
            self.complete = True
            self._body.clear()
            self._news.set()
            self._ended()
