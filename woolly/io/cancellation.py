"""Work in a thread that can be stopped: a thread cannot be killed, so long work asks whether it is still wanted.

    cancellation = Cancellation()
    executor.submit(cancellation.run, work)
    cancellation.cancel()                      # from any thread

In `work`, wherever it is called, `check` raises AbandonedError from then on. A check costs less than a microsecond,
so a loop makes one for each of its pieces; a wait takes the shorter of its own time and POLL_S, as `held` and `pause`
do; one that cannot look itself, as for a socket, is ended by what `stopping` calls. Outside of such work none of them
does anything: the library and the command line need no second way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.05  # between two checks of work that waits for something else


class AbandonedError(Exception):
    """Nobody waits for the result of this work any more."""


class Cancellation:
    """Stops one piece of work."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []  # what ends the waits of the work

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            for stop in self._stops:
                stop()

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._stops.append(stop)
            if self.cancelled:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)

    def run(self, work: Callable[[], T]) -> T:
        """Do the work, whose checks look at this cancellation."""
        before = _CURRENT.set(self)
        try:
            check()
            return work()
        finally:
            _CURRENT.reset(before)


_CURRENT: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


def check() -> None:
    """Raise AbandonedError where nobody waits for the result of the work that calls this."""
    current = _CURRENT.get()
    if current is not None and current.cancelled:
        raise AbandonedError


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` as soon as nobody waits for the result of the work that calls this, from another thread: it ends a
    wait, which then looks."""
    current = _CURRENT.get()
    if current is None:
        yield
        return
    with current.stopping(stop):
        yield


@contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock; whoever waits for it goes when nobody waits for the result any more."""
    while not lock.acquire(timeout=POLL_S):
        check()
    try:
        yield
    finally:
        lock.release()


def pause(seconds: float) -> None:
    """Sleep, as long as somebody waits for the result."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, POLL_S))
