"""The text that a user gives: words of the command line and standard input, both checked to be whole UTF-8."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.system import user_path


def check_utf8(word: str, what: str) -> str:
    """The word, refused if it has bytes that are no UTF-8 (which Python keeps as lone surrogates)."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError as error:
        offset = len(word[: error.start].encode("utf-8"))
        raise RequestError(f"{what} is not UTF-8 at byte {offset:,}", param=what, offset=offset) from None
    return word


def stdin_is_piped() -> bool:
    """Whether standard input is a pipe, a file or a socket; a terminal and /dev/null are not read."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def read_input(*, lossy: bool) -> str:
    """All of standard input as text; bytes that are no UTF-8 are refused with their place, or replaced where lossy."""
    return _text(sys.stdin.buffer.read(LIMITS.input + 1), "standard input", "stdin", lossy=lossy)


def read_text(path: Path, *, lossy: bool) -> str:
    """All of a file as text, by the same rules."""
    try:
        with user_path(path).open("rb") as file:
            data = file.read(LIMITS.input + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file '{printable(path)}'", path=str(path)) from None
    except OSError as error:
        raise FileError(f"'{printable(path)}' cannot be read: {printable(error.strerror or error)}") from None
    return _text(data, f"'{printable(path)}'", str(path), lossy=lossy)


def _text(data: bytes, what: str, param: str, *, lossy: bool) -> str:
    if len(data) > LIMITS.input:
        raise RequestError(
            f"{what} has more than {LIMITS.input:,} bytes",
            suggestion="give less at once",
            param=param,
            limit=LIMITS.input,
        )
    try:
        return data.decode("utf-8", "replace" if lossy else "strict")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{what} is not UTF-8 at byte {error.start:,}",
            suggestion="--lossy replaces such bytes by U+FFFD",
            param=param,
            offset=error.start,
        ) from None
