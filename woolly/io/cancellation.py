"""Work in a thread that can be stopped: a thread cannot be killed, so long work asks whether it is still wanted.

    cancellation = Cancellation()
    executor.submit(cancellation.run, work)
    cancellation.cancel()                      # from any thread

Within `work`, wherever it is called, `check` raises AbandonedError from then on. A check costs less than a microsecond,
so a loop makes one for each of its pieces; a wait takes the shorter of its own time and POLL_S. Outside of such work a
check does nothing: the library and the command line need no second way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.05  # between two checks of work that waits for something else


class AbandonedError(Exception):
    """Nobody waits for the result of this work any more."""


class Cancellation:
    """Stops one piece of work."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

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
