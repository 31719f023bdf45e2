"""Ctrl-C while Python is starting: it must end the command, and an exception cannot promise that."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
