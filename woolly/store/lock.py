"""One process at a time works on an unfinished download.

The lock is the kernel's (flock): it ends with its process, so there is no stale one. Where a file system has no locks,
each process takes a folder of its own and starts anew; the digest, not the lock, is what makes a model right.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from woolly.errors import FileError, printable

POLL_S = 0.2
PATIENCE_S = 300.0  # for another process whose download does not grow
BUSY = (errno.EWOULDBLOCK, errno.EACCES)
KEPT_S = 30 * 86400.0  # an unfinished download is kept so long


@contextlib.contextmanager
def claimed(folder: Path, waiting: Callable[[], int]) -> Iterator[Path]:
    """The folder, made if need be, while nobody else works in it; another process is waited for
    as long as `waiting()` grows."""
    grown, since = waiting(), time.monotonic()
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = _open(folder / "lock")
        if handle is None:
            continue  # the holder has just finished and taken the folder away
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno not in BUSY:
                shutil.rmtree(folder, ignore_errors=True)  # of no use to anybody without locks
                with _alone(folder) as place:
                    yield place
                return
        else:
            if _is_still(handle, folder / "lock"):
                break
            os.close(handle)  # of a folder that the holder before us took away
            continue
        if (now := waiting()) != grown:
            grown, since = now, time.monotonic()
        if time.monotonic() - since > PATIENCE_S:
            raise FileError(
                f"another process holds {printable(folder, 300)} and does not get on",
                suggestion="end it, and try again",
                code="disk_error",
            )
        time.sleep(POLL_S)
    try:
        yield folder
    finally:
        os.close(handle)


def sweep(models: Path) -> None:
    """Remove the unfinished downloads that nobody wants any more: without data, or untouched for a month."""
    for folder in models.glob(".pull-*"):
        with contextlib.suppress(OSError):
            data = folder / "data"
            if data.exists() and time.time() - data.stat().st_mtime < KEPT_S:
                continue
            handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """A folder of our own beside the one that cannot be locked; gone at the end."""
    place = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None


def _is_still(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
