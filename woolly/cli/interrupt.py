"""Ctrl-C. While Python is starting it must end the command, and an exception cannot promise that. Later it stops an
answer and not the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ends_at_once() -> Iterator[None]:
    """Inside, Ctrl-C ends the process by the system's own action, as with any program that catches nothing.

    Extension modules clear the errors that they meet while they are imported and while they call back, and with them a
    KeyboardInterrupt that falls into that moment: the command would go on as if nobody had asked it to stop.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield  # in the background of a shell Ctrl-C is not for us; and only the main thread can set handlers
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Stop:
    """What the first Ctrl-C does inside `stops`."""

    def __init__(self) -> None:
        self.asked = False
        self._cancel: Callable[[], None] | None = None

    def then(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` at the first Ctrl-C; at once if it was before."""
        self._cancel = cancel
        if self.asked:
            cancel()

    def now(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._cancel is not None:
            self._cancel()


@contextmanager
def stops() -> Iterator[Stop]:
    """Inside, the first Ctrl-C stops what `then` names and raises nothing, so no line is left half written; a second
    one is a KeyboardInterrupt, should the stopping take long.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, stop.now)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
