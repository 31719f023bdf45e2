"""Ctrl-C. While modules are imported it must end the process, and an exception may get lost there. Later it stops
an answer and not the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ctrl_c_kills() -> Iterator[None]:
    """Inside, Ctrl-C ends the process by the system's own action, as with any program that catches nothing.

    Extension modules clear the errors that they meet while they are imported and while they call back, and with them a
    KeyboardInterrupt that falls into that moment: the command would go on as if Ctrl-C had not been pressed.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield  # a background job must keep ignoring Ctrl-C; and only the main thread can set handlers
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Stop:
    """The handler of Ctrl-C inside `ctrl_c_cancels`."""

    def __init__(self) -> None:
        self.asked = False
        self._cancel: Callable[[], None] | None = None

    def then(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` at the first Ctrl-C, or at once where that has come already."""
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
def ctrl_c_cancels() -> Iterator[Stop]:
    """Inside, the first Ctrl-C calls the function given to `then` and raises nothing, so no line is left half written;
    a second one raises KeyboardInterrupt, should the stopping take long.
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
