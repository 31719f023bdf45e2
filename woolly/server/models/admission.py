"""Admission: the queue before an engine, bounded, and fair between clients.

At most `permits` requests are with the engine; the others wait here. A free permit goes to the client that was served
longest ago, and to the oldest of its requests: a client with a hundred requests does not hold up one with a single one.
A client that is refused is told when those who wait now will have a permit, by how long permits were held of late.
Owned by the event loop.

Rows of batches come after everybody else. Beside a request that somebody waits for they have one permit, so that a
batch advances however busy the server is; else all but a quarter of the permits, so that whoever comes has one at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from woolly.config.serving import Serving
from woolly.errors import BusyError
from woolly.server.fair_queue import FairQueue
from woolly.server.http.errors import too_many


class AdmissionQueue:
    def __init__(self, permits: int, limits: Serving) -> None:
        self.permits = permits
        self.limits = limits
        self.busy = 0  # permits taken
        self.rows = 0  # of these, by rows of batches
        self.closed = False
        self._hold_s = 0.0  # for which a permit is held, on average, the latest counting most
        self._requests = FairQueue[None](lambda _: self._release(row=False))
        self._rows = FairQueue[None](lambda _: self._release(row=True))

    @property
    def waiting(self) -> int:
        """Requests that wait; rows of batches do not count."""
        return self._requests.count

    @asynccontextmanager
    async def permit(self, client: str, *, row: bool = False) -> AsyncIterator[None]:
        """Hold a permit, waiting for it; BusyError at once where too many wait already. row: of a batch."""
        await self._enter(client, row=row)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            yield
        finally:
            if not row:
                hold_s = loop.time() - begun
                self._hold_s = 0.8 * self._hold_s + 0.2 * hold_s if self._hold_s else hold_s
            self._release(row=row)

    def resize(self, permits: int) -> None:
        """There are more permits now, or fewer; who has one keeps it."""
        self.permits = permits
        self._next()

    def close(self) -> None:
        """Refuse every request that waits, and all that come."""
        self.closed = True
        self._requests.refuse_all(ending)
        self._rows.refuse_all(ending)

    async def _enter(self, client: str, *, row: bool) -> None:
        if self.closed:
            raise ending()
        waiting = self._rows if row else self._requests
        if waiting.empty and (self._has_room_for_row() if row else self.busy < self.permits):
            self._grant(row=row)
            return
        if not row:
            if waiting.of(client) >= self.limits.waiting_per_client:
                raise too_many(f"{waiting.of(client)} of your requests are waiting already", self._passes_s())
            if waiting.count >= self.limits.waiting:
                raise too_many(f"{waiting.count} requests are waiting already", self._passes_s())
        await waiting.wait(client)

    def _grant(self, *, row: bool) -> None:
        self.busy += 1
        self.rows += row

    def _release(self, *, row: bool) -> None:
        self.busy -= 1
        self.rows -= row
        self._next()

    def _has_room_for_row(self) -> bool:
        alone = self.busy == self.rows and self._requests.empty
        most = max(self.permits - self.permits // 4, 1) if alone else 1
        return self.rows < most and self.busy < self.permits

    def _passes_s(self) -> int:
        """Seconds after which all who wait now will have had a permit."""
        seconds = math.ceil(self._hold_s * self.waiting / max(self.permits, 1))
        return min(max(seconds, 1), max(math.ceil(self.limits.request_timeout), 1))

    def _next(self) -> None:
        while self.busy < self.permits and self._requests.serve(lambda _: self._grant(row=False)):
            pass
        while self._has_room_for_row() and self._rows.serve(lambda _: self._grant(row=True)):
            pass


def ending() -> BusyError:
    """The server takes no work any more, whoever asks: 503."""
    return BusyError("the server is ending", suggestion="try again in a moment", code="overloaded", retry_after=5)
