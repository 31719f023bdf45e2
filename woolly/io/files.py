"""Files of the user: read within bounds, written whole and for their owner alone."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from woolly.errors import FileError, NotFoundError, printable
from woolly.io.disk import PRIVATE, disk_fault, make_private_folder, write_atomically
from woolly.system import user_path


def read_text(path: Path, most: int) -> str:
    """The text of a file: a regular one, of at most `most` bytes, UTF-8, without NUL."""
    name = printable(path, 300)
    data = read_bytes(path, most)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 at byte {error.start:,}", suggestion="only text can be read") from None
    if "\0" in text:
        raise FileError(f"{name} holds a NUL at byte {data.index(0):,}", suggestion="only text can be read")
    return text


def read_bytes(path: Path, most: int, *, name: str = "") -> bytes:
    """The bytes of a regular file. A pipe or a device is refused before it is read: it could have no end.

    name: what errors call it instead of its path.
    """
    name = name or printable(path, 300)
    try:
        handle = os.open(user_path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {name}") from None
    except (OSError, ValueError) as error:
        raise disk_fault(f"{name} cannot be opened", error, suggestion="", code=FileError.code) from None
    try:
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise FileError(f"{name} is no ordinary file")
            data = file.read(most + 1)
    except OSError as error:
        raise disk_fault(f"{name} cannot be read", error, suggestion="", code=FileError.code) from None
    if len(data) > most:
        raise FileError(f"{name} has more than {most:,} bytes, which is the most that is read")
    return data


def write_private(
    path: Path, data: bytes, *, name: str = "", suggestion: str = "make room, or give another path"
) -> None:
    """Write a file that only its owner can read. Whenever this is killed, the path has the old file or the new one.

    A link stays a link, and a file that is there keeps its mode. name: what errors call it instead of its path.
    """
    mode = PRIVATE
    try:
        target = Path(os.path.realpath(path))
        make_private_folder(target.parent)
        with contextlib.suppress(FileNotFoundError):
            mode = target.stat().st_mode & 0o777
        write_atomically(target, [data], mode=mode)
    except (OSError, ValueError) as error:
        raise disk_fault(f"{name or printable(path, 300)} cannot be written", error, suggestion=suggestion) from None
