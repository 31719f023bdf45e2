"""The line before an engine: bounded, and fair between clients.

At most `places` requests are with the engine; the others wait here. A free place goes to the client that was served
longest ago, and to the oldest of its requests: a client with a hundred requests does not hold up one with a single one.
Who is refused is told when the line will have passed, by how long places were held of late. Owned by the event loop.
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


class Line:
    def __init__(self, places: int, limits: Serving) -> None:
        self.places = places
        self.limits = limits
        self.busy = 0  # places taken
        self.waiting = 0
        self.closed = False
        self._held_s = 0.0  # for which a place is held, the latest counting most
        self._clients: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their next turn

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """A place with the engine, waited for in line; refused at once where the line is full."""
        await self._enter(client)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            yield
        finally:
            held = loop.time() - begun
            self._held_s = 0.8 * self._held_s + 0.2 * held if self._held_s else held
            self.busy -= 1
            self._next()

    def resize(self, places: int) -> None:
        """There are more places now, or fewer; who has one keeps it."""
        self.places = places
        self._next()

    def close(self) -> None:
        """Send everybody home who waits, and take nobody any more."""
        self.closed = True
        for queue in self._clients.values():
            for turn in queue:
                if not turn.done():
                    turn.set_exception(ending())

    async def _enter(self, client: str) -> None:
        if self.closed:
            raise ending()
        if self.busy < self.places and not self._clients:
            self.busy += 1
            return
        queue = self._clients.get(client, deque())
        if len(queue) >= self.limits.waiting_per_client:
            raise too_many(f"{len(queue)} of your requests are waiting already", self._passes_s())
        if self.waiting >= self.limits.waiting:
            raise too_many(f"{self.waiting} requests are waiting already", self._passes_s())
        self._clients[client] = queue
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self.waiting += 1
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # the place came with the cancel
                self.busy -= 1
                self._next()
            raise
        finally:
            self.waiting -= 1
            if turn in queue:
                queue.remove(turn)
            if not queue and self._clients.get(client) is queue:
                del self._clients[client]

    def _passes_s(self) -> int:
        """Seconds after which all who wait now will have a place."""
        seconds = math.ceil(self._held_s * self.waiting / max(self.places, 1))
        return min(max(seconds, 1), max(math.ceil(self.limits.request_timeout), 1))

    def _next(self) -> None:
        while self.busy < self.places:
            client = next((name for name, queue in self._clients.items() if any(not t.done() for t in queue)), None)
            if client is None:
                return
            queue = self._clients.pop(client)
            turn = next(t for t in queue if not t.done())
            queue.remove(turn)
            if queue:
                self._clients[client] = queue  # at the end: the others come first now
            self.busy += 1
            turn.set_result(None)


def ending() -> BusyError:
    """The server takes no work any more, whoever asks: 503."""
    return BusyError("the server is ending", suggestion="try again in a moment", code="overloaded", retry_after=5)
