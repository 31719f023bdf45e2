"""The work of a thread: its time on a processor, without the garbage collections that happened to run in it.

A collection runs in the thread that happens to allocate when one is due. In a large program it takes longer than any
mask of a grammar should, and says nothing about the grammar.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from threading import get_ident, local


class WorkClock:
    """The seconds that one thread has worked, for any thread to read."""

    __slots__ = ("_collection_begun_s", "_now", "collected_s")

    def __init__(self) -> None:
        self._now = _processor_time()
        self._collection_begun_s: float | None = None
        self.collected_s = 0.0

    def read(self) -> float:
        begun_s = self._collection_begun_s
        return (self._now() if begun_s is None else begun_s) - self.collected_s

    def collecting(self, phase: str) -> None:
        if phase == "start":
            self._collection_begun_s = self._now()
        elif self._collection_begun_s is not None:
            self.collected_s += self._now() - self._collection_begun_s
            self._collection_begun_s = None  # last: a reader in between sees too little work, never too much


_THREAD = local()


def work_clock() -> WorkClock:
    """The clock of this thread."""
    clock: WorkClock | None = getattr(_THREAD, "clock", None)
    if clock is None:
        clock = _THREAD.clock = WorkClock()
        if _collecting not in gc.callbacks:
            gc.callbacks.append(_collecting)
    return clock


def worked_s() -> float:
    """The seconds that this thread has worked, on every system."""
    return time.thread_time() - work_clock().collected_s


def _collecting(phase: str, _figures: dict[str, int]) -> None:
    clock: WorkClock | None = getattr(_THREAD, "clock", None)
    if clock is not None:
        clock.collecting(phase)


def _processor_time() -> Callable[[], float]:
    """Tells any thread how long this one has been on a processor; where the system cannot, the time that passes."""
    if hasattr(time, "pthread_getcpuclockid"):
        return partial(time.clock_gettime, time.pthread_getcpuclockid(get_ident()))
    return time.perf_counter
