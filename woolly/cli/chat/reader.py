"""Reading a message, and the plain way to do it; editing.py has the one for a terminal that can move its cursor."""

from __future__ import annotations

import io
import sys
from typing import Protocol

from woolly.cli.chat.typed import is_unfinished

PROMPT, MORE = ">>> ", "... "


class Reader(Protocol):
    def __call__(self) -> str:
        """One message as it was typed. EOFError: the input is over; KeyboardInterrupt: Ctrl-C and nothing typed."""


def line_reader() -> Reader:
    """For a terminal that cannot move its cursor: the terminal's own editing, line by line."""

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is not UTF-8 is refused later; the chat goes on

    def read() -> str:
        typed = input(PROMPT)
        while is_unfinished(typed):
            typed += "\n" + input(MORE)
        return typed

    return read
