"""What was typed before: one JSON text a line, bounded, for its owner alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from woolly.cli.terminal import harmless
from woolly.errors import WoollyError
from woolly.limits import LIMITS
from woolly.store.disk import make_private
from woolly.store.files import read_bytes, write_private

LONGEST = LIMITS.history // 16  # bytes of one entry; a whole book that was pasted once is not kept


def read_history(path: Path) -> list[str]:
    """The entries, oldest first. A file that cannot be read or a line of another format counts as nothing."""
    try:
        lines = read_bytes(path, 4 * LIMITS.history).split(b"\n")
    except WoollyError:
        return []
    entries: list[str] = []
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, str) and entry and harmless(entry) == entry:
            entries.append(entry)
    return entries[-LIMITS.history_lines :]


def add_history(path: Path, entry: str) -> None:
    """One entry more; raises OSError where the disk refuses it."""
    data = json.dumps(entry).encode() + b"\n"
    if len(data) > LONGEST:
        return
    make_private(path.parent)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, data)
        size = os.fstat(handle).st_size
    finally:
        os.close(handle)
    if size > LIMITS.history:
        shorten(path)


def shorten(path: Path) -> None:
    """Keep the newest entries, as many as half of the file may hold."""
    kept: list[bytes] = []
    room = LIMITS.history // 2
    for entry in reversed(read_history(path)):
        line = json.dumps(entry).encode() + b"\n"
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    write_private(path, b"".join(reversed(kept)))
