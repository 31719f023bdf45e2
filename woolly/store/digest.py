"""The digest of a model's files, by which an answer says exactly what gave it, and a page on the disk what it is of; a
name can mean another file tomorrow."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from woolly.engine import Shelf

CHUNK = 1 << 20
SETTLED_S = 2.0  # a file that changed so shortly ago may change again without another time


def file_digest(paths: Iterable[Path], wanted: Callable[[], bool]) -> bytes | None:
    """The SHA-256 of these files, one after the other; None once it is not wanted.

    In a thread: a second or so a gigabyte.
    """
    made = hashlib.sha256()
    for path in paths:
        with path.open("rb", buffering=0) as data:
            while piece := data.read(CHUNK):
                made.update(piece)
                if not wanted():
                    return None
    return made.digest()


def known_digest(
    files: Iterable[tuple[Path, os.stat_result]], shelf: Shelf, wanted: Callable[[], bool]
) -> bytes | None:
    """The same, of files as they were when they were opened; None if one is another by now. The shelf remembers it for
    as long as all have the place, the size and the times that they had."""
    from woolly.engine import name_of  # NumPy comes with it

    files = tuple(files)
    facts = [(path.resolve(), _facts(opened)) for path, opened in files]
    name = name_of(b"digest of a model", repr(facts).encode())
    if _changed(files):
        return None
    known = shelf.get(name, 32) if shelf.has(name) else None
    if known is not None:
        return bytes(known)
    made = file_digest((path for path, _ in files), wanted)
    if made is None or _changed(files):
        return None
    if all(time.time_ns() - max(facts.st_mtime_ns, facts.st_ctime_ns) > SETTLED_S * 1e9 for _, facts in files):
        shelf.put(name, made)
    return made


def _facts(opened: os.stat_result) -> tuple[int, ...]:
    return opened.st_dev, opened.st_ino, opened.st_size, opened.st_mtime_ns, opened.st_ctime_ns


def _changed(files: Iterable[tuple[Path, os.stat_result]]) -> bool:
    return any(_facts(path.stat()) != _facts(opened) for path, opened in files)
