"""The line before an engine: bounded, and fair between clients.

At most `places` requests are with the engine; the others wait here. A free place goes to the client that was served
longest ago, and to the oldest of its requests: a client with a hundred requests does not hold up one with a single one.
Who is refused is told when the line will have passed, by how long places were held of late. Owned by the event loop.

Rows of batches come after everybody else. Beside a request that somebody waits for they have one place, so that a batch
gets on however busy the server is; else all but a quarter of the places, so that whoever comes has one at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from woolly.errors import BusyError
from woolly.limits import Serving
from woolly.server.errors import too_many


class _Waiting:
    """Those who wait, each client's in the order in which they came."""

    def __init__(self) -> None:
        self.count = 0
        self._clients: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their next turn

    @property
    def nobody(self) -> bool:
        return not self._clients

    def of(self, client: str) -> int:
        return len(self._clients.get(client, ()))

    async def wait(self, client: str) -> None:
        """Until it is this one's turn. Whoever goes when it has just been given raises _GivenError from its reason."""
        queue = self._clients.setdefault(client, deque())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self.count += 1
        try:
            await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # the place came with the cancel
                raise _GivenError from error
            raise
        finally:
            self.count -= 1
            if turn in queue:
                queue.remove(turn)
            if not queue and self._clients.get(client) is queue:
                del self._clients[client]

    def next(self) -> asyncio.Future[None] | None:
        """The oldest of the client whose turn it is; the others come before it from now on."""
        client = next((name for name, queue in self._clients.items() if any(not t.done() for t in queue)), None)
        if client is None:
            return None
        queue = self._clients.pop(client)
        turn = next(t for t in queue if not t.done())
        queue.remove(turn)
        if queue:
            self._clients[client] = queue
        return turn

    def send_home(self) -> None:
        for queue in self._clients.values():
            for turn in queue:
                if not turn.done():
                    turn.set_exception(ending())


class _GivenError(Exception):
    """Who was given a place has gone."""


class Line:
    def __init__(self, places: int, limits: Serving) -> None:
        self.places = places
        self.limits = limits
        self.busy = 0  # places taken
        self.rows = 0  # of these, by rows of batches
        self.closed = False
        self._held_s = 0.0  # for which a place is held, the latest counting most
        self._requests, self._rows = _Waiting(), _Waiting()

    @property
    def waiting(self) -> int:
        """Requests in line; rows of batches do not count."""
        return self._requests.count

    @asynccontextmanager
    async def place(self, client: str, *, row: bool = False) -> AsyncIterator[None]:
        """A place with the engine, waited for in line; refused at once where the line is full. row: of a batch."""
        await self._enter(client, row=row)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            yield
        finally:
            if not row:
                held = loop.time() - begun
                self._held_s = 0.8 * self._held_s + 0.2 * held if self._held_s else held
            self._free(row=row)

    def resize(self, places: int) -> None:
        """There are more places now, or fewer; who has one keeps it."""
        self.places = places
        self._next()

    def close(self) -> None:
        """Send everybody home who waits, and take nobody any more."""
        self.closed = True
        self._requests.send_home()
        self._rows.send_home()

    async def _enter(self, client: str, *, row: bool) -> None:
        if self.closed:
            raise ending()
        waiting = self._rows if row else self._requests
        if waiting.nobody and (self._has_room_for_row() if row else self.busy < self.places):
            self._take(row=row)
            return
        if not row:
            if waiting.of(client) >= self.limits.waiting_per_client:
                raise too_many(f"{waiting.of(client)} of your requests are waiting already", self._passes_s())
            if waiting.count >= self.limits.waiting:
                raise too_many(f"{waiting.count} requests are waiting already", self._passes_s())
        try:
            await waiting.wait(client)
        except _GivenError as given:
            self._free(row=row)
            assert given.__cause__ is not None
            raise given.__cause__ from None

    def _take(self, *, row: bool) -> None:
        self.busy += 1
        self.rows += row

    def _free(self, *, row: bool) -> None:
        self.busy -= 1
        self.rows -= row
        self._next()

    def _has_room_for_row(self) -> bool:
        alone = self.busy == self.rows and self._requests.nobody
        most = max(self.places - self.places // 4, 1) if alone else 1
        return self.rows < most and self.busy < self.places

    def _passes_s(self) -> int:
        """Seconds after which all who wait now will have a place."""
        seconds = math.ceil(self._held_s * self.waiting / max(self.places, 1))
        return min(max(seconds, 1), max(math.ceil(self.limits.request_timeout), 1))

    def _next(self) -> None:
        while self.busy < self.places and (turn := self._requests.next()) is not None:
            self._take(row=False)
            turn.set_result(None)
        while self._has_room_for_row() and (turn := self._rows.next()) is not None:
            self._take(row=True)
            turn.set_result(None)


def ending() -> BusyError:
    """The server takes no work any more, whoever asks: 503."""
    return BusyError("the server is ending", suggestion="try again in a moment", code="overloaded", retry_after=5)
