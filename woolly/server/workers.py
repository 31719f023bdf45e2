"""The threads that work for callers, off the event loop: some render, tokenise, compile and hand over to an engine,
others wait for the tools of other programs.

Fair: a thread that is free goes to the caller that was served longest ago, and no caller has all of them. Accounted: a
caller has a thread until its work has ended, not until it has gone. Stoppable: when the caller goes, the checks of its
work (io/cancellation.py) raise, so that the thread is free within a moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from woolly.io.cancellation import Cancellation
from woolly.server.accounts import Accounts, Bound, Grant, Resource
from woolly.server.fair_queue import FairQueue

T = TypeVar("T")
THREADS = Bound(each=2, all=4)
LARGE = 64 << 10  # bytes of a body, or of a message, that are read in a thread instead of on the event loop


def begin_all(threads: ThreadPoolExecutor, count: int) -> None:
    """Begin all threads of a pool now: each would begin when it is first needed, and the event loop would wait for ever
    for one that finds no memory then."""
    begun = threading.Barrier(count + 1)
    for _ in range(count):
        threads.submit(begun.wait)
    begun.wait()


class Workers:
    """Owned by the event loop. resource: what a caller takes by having a thread; bound: how many there are."""

    def __init__(
        self, accounts: Accounts, resource: Resource = Resource.THREADS, bound: Bound = THREADS, name: str = "work"
    ) -> None:
        self._accounts = accounts
        self._resource = resource
        self._waiting = FairQueue[Grant](self._free)
        self._count = int(bound.all)
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix=f"woolly-{name}")

    def begin(self) -> None:
        begin_all(self._threads, self._count)

    async def run(self, holder: str, work: Callable[[], T], *, drop: Callable[[T], None] | None = None) -> T:
        """The result of work in a thread. Whoever is cancelled meanwhile does not wait for its end: the work is told to
        stop, and where it comes to a result all the same, `drop` undoes it."""
        grant = await self._thread(holder)
        cancellation = Cancellation()
        run = copy_context().run
        working = asyncio.get_running_loop().run_in_executor(self._threads, run, cancellation.run, work)

        working.add_done_callback(lambda _: self._free(grant))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            cancellation.cancel()
            working.add_done_callback(lambda done: _undo(done, drop))  # it may have its result already
            raise

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _thread(self, holder: str) -> Grant:
        if self._has_room(holder) and not self._waiting.of(holder):
            return self._take(holder)
        return await self._waiting.wait(holder)

    def _free(self, grant: Grant) -> None:
        grant.give_back()
        while self._waiting.serve(self._take, self._has_room):
            pass

    def _take(self, holder: str) -> Grant:
        return self._accounts.take(holder, self._resource)

    def _has_room(self, holder: str) -> bool:
        return self._accounts.has_room(holder, self._resource)


def _undo(done: asyncio.Future[T], drop: Callable[[T], None] | None) -> None:
    if not done.cancelled() and done.exception() is None and drop is not None:
        drop(done.result())
