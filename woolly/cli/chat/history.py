"""The history of typed messages: one JSON text a line, in a bounded file that only its owner can read."""

from __future__ import annotations

import json
import os
from pathlib import Path

from woolly.cli.terminal import escape_controls
from woolly.errors import WoollyError
from woolly.io.disk import make_private_folder
from woolly.io.files import read_bytes, write_private
from woolly.limits import LIMITS

LONGEST = LIMITS.history // 16  # bytes of one entry; a longer one, such as a pasted book, is not added


def read_history(path: Path) -> list[str]:
    """The entries, oldest first. A file that cannot be read or a line of another format counts as nothing."""
    try:
        return _entries(path)
    except WoollyError:
        return []


def _entries(path: Path) -> list[str]:
    entries: list[str] = []
    for line in read_bytes(path, 4 * LIMITS.history).split(b"\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, str) and entry and escape_controls(entry) == entry:
            entries.append(entry)
    return entries[-LIMITS.history_lines :]


def add_history(path: Path, entry: str) -> None:
    """Append an entry; raises OSError where the disk refuses it."""
    data = json.dumps(entry).encode() + b"\n"
    if len(data) > LONGEST:
        return
    make_private_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # the last line was cut by a full disk or a kill
            data = b"\n" + data
        size += len(data)
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)
    if size > LIMITS.history:
        shorten(path)


def shorten(path: Path) -> None:
    """Keep the newest entries, as many as half of the file may hold."""
    newest: list[bytes] = []
    room = LIMITS.history // 2
    for entry in reversed(_entries(path)):
        line = json.dumps(entry).encode() + b"\n"
        room -= len(line)
        if room < 0:
            break
        newest.append(line)
    write_private(path, b"".join(reversed(newest)))
