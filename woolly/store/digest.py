"""The digest of a model's files. Answers and pages on disk name their model by it, because a name can mean another file
tomorrow."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from woolly.engine import DiskStore

CHUNK = 1 << 20
SETTLED_S = 2.0  # a file that changed within this time may change again and keep its modification time


def file_digest(paths: Iterable[Path], wanted: Callable[[], bool]) -> bytes | None:
    """The SHA-256 of these files, one after the other; None once `wanted` returns False.

    It takes about a second a gigabyte, so it runs in a thread.
    """
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb", buffering=0) as data:
            while piece := data.read(CHUNK):
                digest.update(piece)
                if not wanted():
                    return None
    return digest.digest()


def cached_digest(
    files: Iterable[tuple[Path, os.stat_result]], disk_store: DiskStore, wanted: Callable[[], bool]
) -> bytes | None:
    """The digest of files as they were when they were opened; None if one has changed since.

    The disk store keeps the digest for as long as every file has the same path, size and times.
    """
    from woolly.engine import name_of  # imported late: it brings NumPy

    files = tuple(files)
    facts = [(path.resolve(), _identity(opened)) for path, opened in files]
    name = name_of(b"digest of a model", repr(facts).encode())
    if _changed(files):
        return None
    known = disk_store.get(name, 32) if disk_store.has(name) else None
    if known is not None:
        return bytes(known)
    digest = file_digest((path for path, _ in files), wanted)
    if digest is None or _changed(files):
        return None
    if all(time.time_ns() - max(facts.st_mtime_ns, facts.st_ctime_ns) > SETTLED_S * 1e9 for _, facts in files):
        disk_store.put(name, digest)
    return digest


def _identity(opened: os.stat_result) -> tuple[int, ...]:
    return opened.st_dev, opened.st_ino, opened.st_size, opened.st_mtime_ns, opened.st_ctime_ns


def _changed(files: Iterable[tuple[Path, os.stat_result]]) -> bool:
    return any(_identity(path.stat()) != _identity(opened) for path, opened in files)
