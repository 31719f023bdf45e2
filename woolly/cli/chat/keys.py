"""The modes of the terminal: keys typed during an answer are not echoed, and the old modes are restored at the end."""

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
def terminal_restored() -> Iterator[None]:
    """Restores the terminal's modes at the end of the block, which a SIGTERM ends by an exception."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(TERMINATED)

    attributes = termios.tcgetattr(sys.stdin)
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)


@contextmanager
def echo_off() -> Iterator[None]:
    """Inside the block keys are not echoed; they stay in the input for the next prompt."""
    attributes = termios.tcgetattr(sys.stdin)
    without_echo = [*attributes[:ECHO], attributes[ECHO] & ~termios.ECHO, *attributes[ECHO + 1 :]]
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, without_echo)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
