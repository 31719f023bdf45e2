"""One request and its answer, over ASGI: read the body within its limits, send an answer, notice a client that goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from woolly.config.serving import Serving
from woolly.errors import RequestError, WoollyError
from woolly.server.accounts import Bound, Grant
from woolly.server.http.reply import Reply
from woolly.system import check_room

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
T = TypeVar("T")

LARGE = 1 << 20  # bytes of a body for which memory is looked for before it is read: a read without ends the connection

_encode = msgspec.json.Encoder().encode


class GoneError(Exception):
    """The client has gone, so nothing can be sent."""


class Http:
    """A request, and the writer of its answer."""

    __slots__ = (
        "_finished",
        "_more",
        "_receive",
        "_send",
        "begun_s",
        "extra",
        "headers",
        "id",
        "quiet",
        "scope",
        "shape",
        "started",
        "status",
    )
    shape: Callable[[WoollyError, str], msgspec.Struct]  # what shapes its errors, as far as its route is known

    def __init__(self, scope: Scope, receive: Receive, send: Send, id_: str) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self._finished = False  # the last byte of the answer was written
        self._more = True  # the body has not been read to its end
        self.id = id_
        self.begun_s = time.monotonic()  # as the event loop counts
        self.headers: Mapping[str, str] = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        self.extra: dict[str, str] = {}  # headers that every answer carries
        self.started = False
        self.status = 0
        self.quiet = False  # a success is logged at the level debug

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    @property
    def peer(self) -> str:
        """The address of the client."""
        return str((self.scope.get("client") or ("", 0))[0])

    @property
    def announced(self) -> int:
        """The bytes that the body is to have, as far as the client has told."""
        length = self.headers.get("content-length", "0")
        return int(length[:20]) if length.isdigit() else 0

    async def body(self, most: int, memory: Grant) -> bytes:
        """The whole body, never more than so many bytes. memory: takes them before they are read."""
        announced, data = self.announced, bytearray()
        memory.resize(announced)
        if announced > LARGE:
            check_room(2 * announced)
        async for piece in self.pieces(most):
            memory.resize(max(announced, len(data) + len(piece)))
            data += piece
        return bytes(data)

    async def pieces(self, most: int) -> AsyncGenerator[bytes, None]:
        """The body as it comes, never more than so many bytes."""
        size = 0
        while self._more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise GoneError
            piece = message.get("body", b"")
            self._more = bool(message.get("more_body"))
            size += len(piece)
            if size > most:
                raise too_large(most)
            yield piece

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work, but stop it as soon as the client goes away."""
        task, gone = asyncio.create_task(work), asyncio.create_task(self._gone())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not self._finished:  # the end of an answer looks like a reader that has gone
                raise GoneError
            return await task
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def reply(self, reply: Reply[Any]) -> None:
        """Send a whole answer."""
        body = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
        names = {"content-type": reply.media_type} if body else {}
        if reply.status not in (204, 304):  # which have no length
            names["content-length"] = str(len(body))
        names |= reply.headers
        if self._more and reply.status >= 400 and self.method not in ("GET", "HEAD", "OPTIONS"):
            names["connection"] = "close"  # what is left of the body is not read
        await self.begin(reply.status, names)
        await self.write(body, more=False)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.started, self.status = True, status
        rows = [(k.encode("latin-1"), v.encode("latin-1", "replace")) for k, v in {**self.extra, **headers}.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": rows})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        self._finished = not more
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def bound_of_bodies(limits: Serving) -> Bound:
    """The bytes of bodies that may be in memory, of one caller and of all: at least a body as large as allowed."""
    return Bound(max(64 << 20, limits.max_body_size), max(256 << 20, limits.max_body_size))


def too_large(most: int) -> RequestError:
    return RequestError(f"the body is larger than {most:,} bytes", code="payload_too_large", limit=most)
