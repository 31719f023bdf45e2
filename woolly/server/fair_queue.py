"""A queue that is fair between clients: a client with a hundred requests waits for each like one with a single request.

The next turn belongs to the client that was served longest ago, and to the oldest of its requests. A turn is a value
that whoever serves gives away (a permit, a thread). Owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from woolly.errors import WoollyError

T = TypeVar("T")


def _anyone(client: str) -> bool:
    return True


class FairQueue(Generic[T]):
    """The requests that wait, those of each client in the order in which they came. take_back: undoes a turn that was
    given to a request which has been cancelled meanwhile."""

    def __init__(self, take_back: Callable[[T], None]) -> None:
        self.count = 0
        self._take_back = take_back
        self._clients: dict[str, deque[asyncio.Future[T]]] = {}  # in the order of their next turn

    @property
    def empty(self) -> bool:
        return not self._clients

    def of(self, client: str) -> int:
        return len(self._clients.get(client, ()))

    async def wait(self, client: str) -> T:
        """Wait for a turn."""
        queue = self._clients.setdefault(client, deque())
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self.count += 1
        lost = False
        try:
            return await turn
        except BaseException:
            lost = turn.done() and not turn.cancelled() and turn.exception() is None  # given before the cancel
            raise
        finally:
            self.count -= 1
            if turn in queue:
                queue.remove(turn)
            if not queue and self._clients.get(client) is queue:
                del self._clients[client]
            if lost:
                self._take_back(turn.result())

    def serve(self, give: Callable[[str], T], may: Callable[[str], bool] = _anyone) -> bool:
        """Give the next turn, which `give` makes for its client; this client is the last from now on. False where
        nobody waits who may have a turn now."""
        for client, queue in self._clients.items():
            turn = next((turn for turn in queue if not turn.done()), None)
            if turn is not None and may(client):
                del self._clients[client]
                queue.remove(turn)
                if queue:
                    self._clients[client] = queue
                turn.set_result(give(client))
                return True
        return False

    def refuse_all(self, error: Callable[[], WoollyError]) -> None:
        for queue in self._clients.values():
            for turn in queue:
                if not turn.done():
                    turn.set_exception(error())
