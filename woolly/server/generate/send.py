"""Where an answer goes: a writer takes it whole, or piece by piece as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from woolly.errors import WoollyError
from woolly.server.generate.answering import Answering
from woolly.server.http.reply import Reply
from woolly.server.routes import Streamed

NOTES = "x-woolly-notes"  # the header with the fields of a request that had no effect
RESUMING, RESUMING_S = b": resuming\n\n", 1.0  # in the silence of an answer that has lost its replica


class Writer(Protocol):
    """Where an answer goes: whole by `reply`, or as a stream by `begin` and `write`."""

    id: str
    extra: dict[str, str]  # headers

    async def reply(self, reply: Reply[Any]) -> None: ...
    async def begin(self, status: int, headers: Mapping[str, str]) -> None: ...
    async def write(self, data: bytes, *, more: bool = True) -> None: ...


class Answered:
    """A writer that keeps one whole answer, for callers inside this process."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.extra: dict[str, str] = {}
        self.body: Any = None

    async def reply(self, reply: Reply[Any]) -> None:
        self.body = reply.body

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        raise AssertionError("whole answers only")

    async def write(self, data: bytes, *, more: bool = True) -> None:
        raise AssertionError("whole answers only")


async def send(
    services: Answering,
    streamed: Streamed[Any],
    fault: Callable[[WoollyError, str], msgspec.Struct],
    out: Writer,
    *,
    seen: int | None = None,
) -> None:
    """Send each piece as it comes; an error, which `fault` shapes, is the last one.

    seen: number the pieces, and leave out so many of the first.
    """
    framing, number = streamed.framing, 0
    await out.begin(200, {"content-type": framing.media_type, "cache-control": "no-cache"})
    is_moving = services.is_moving
    moving = None if is_moving is None else lambda: is_moving(out.id)
    connection = _KeepAlive(out, framing.comment, services.settings.limits.comment_s, moving)
    comments = asyncio.create_task(connection.comments()) if framing.comment else None
    try:
        async with aclosing(streamed.pieces) as pieces:
            async for piece in pieces:
                if seen is None:
                    await connection.write(framing.frame(piece))
                    continue
                number += 1
                if number > seen:
                    await connection.write(b"id: %d\n" % number + framing.frame(piece))
        last = framing.last
    except WoollyError as error:
        services.counts.failed += 1
        last = framing.frame(fault(error, out.id))
    finally:
        if comments is not None:
            comments.cancel()
    await connection.write(last, more=False)


class _KeepAlive:
    """Writes to a reader, and keeps the connection alive where there is nothing to write.

    moving: at a gateway, whether the answer waits for another replica; the comments say so then.
    """

    def __init__(self, out: Writer, comment: bytes, comment_s: float, moving: Callable[[], bool] | None) -> None:
        self.out = out
        self.comment = comment
        self.comment_s = comment_s
        self.moving = moving
        self._last_s = time.monotonic()
        self._writing = False

    async def comments(self) -> None:
        """Send a comment whenever nothing was sent for a while, so that no proxy closes the connection."""
        while True:
            after_s, comment = self.comment_s, self.comment
            if self.moving is not None and self.moving():
                after_s, comment = min(RESUMING_S, after_s), RESUMING
            silent = time.monotonic() - self._last_s
            if silent >= after_s and not self._writing:
                await self.write(comment)
            left = after_s if silent >= after_s else after_s - silent
            await asyncio.sleep(left if self.moving is None else min(left, RESUMING_S))

    async def write(self, data: bytes, *, more: bool = True) -> None:
        self._last_s = time.monotonic()
        self._writing = True
        try:
            await self.out.write(data, more=more)
        finally:
            self._writing = False
