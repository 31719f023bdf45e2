"""The terminal's own settings: what is typed into an answer is not drawn into it, and all is left as it was found."""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 143
ECHO = 3  # the index of the local modes in what tcgetattr gives


@contextmanager
def left_as_found() -> Iterator[None]:
    """Inside, a SIGTERM is an exception: whatever ends the program, the terminal gets its settings back."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(TERMINATED)

    found = termios.tcgetattr(sys.stdin)
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, found)


@contextmanager
def unseen() -> Iterator[None]:
    """Inside, keys are not echoed; what is typed waits for the next prompt."""
    found = termios.tcgetattr(sys.stdin)
    silent = [*found[:ECHO], found[ECHO] & ~termios.ECHO, *found[ECHO + 1 :]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, found)
