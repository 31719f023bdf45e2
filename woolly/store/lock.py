"""One process at a time works on an unfinished download. Where a file system has no locks, each takes a folder of its
own and starts anew; the digest, not the lock, is what makes a model right."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from woolly.errors import FileError, printable
from woolly.io.cancellation import pause
from woolly.io.lock import NoLocksError, open_lock, try_lock

POLL_S = 0.2
STALLED_S = 300.0  # how long a download of another process may stand still
STALE_S = 30 * 86400.0  # an unfinished download older than this is removed


@contextlib.contextmanager
def locked_folder(folder: Path, waiting: Callable[[], int]) -> Iterator[Path]:
    """Make the folder and lock it against other processes. Another process that holds the lock is waited for as long as
    `waiting()` grows."""
    grown, grown_at = waiting(), time.monotonic()
    while True:
        with contextlib.suppress(FileExistsError):  # it exists already, perhaps about to be removed by another process
            folder.mkdir(mode=0o700)
        try:
            handle = open_lock(folder / "lock")
        except FileNotFoundError:
            continue  # the process that held the lock has just finished and removed the folder
        try:
            locked = try_lock(handle)
        except NoLocksError:
            os.close(handle)
            shutil.rmtree(folder, ignore_errors=True)  # without locks no other process can resume in this folder
            with _unlocked_folder(folder) as place:
                yield place
            return
        except OSError:
            os.close(handle)
            raise
        if locked and _is_same_file(handle, folder / "lock"):
            break
        os.close(handle)
        if locked:
            continue  # the locked file lies in a folder that has been removed
        if (now := waiting()) != grown:
            grown, grown_at = now, time.monotonic()
        if time.monotonic() - grown_at > STALLED_S:
            raise FileError(
                f"another process holds {printable(folder, 300)} and does not get on",
                suggestion="end it, and try again",
                code="disk_error",
            )
        pause(POLL_S)
    try:
        yield folder
    finally:
        os.close(handle)


def remove_stale(models: Path) -> None:
    """Remove unfinished downloads that have no data, or that nobody has touched for a month."""
    for folder in models.glob(".pull-*"):
        with contextlib.suppress(OSError):
            data = folder / "data"
            if is_there(data) and time.time() - data.stat().st_mtime < STALE_S:
                continue
            handle = open_lock(folder / "lock")
            try:
                if try_lock(handle):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def is_there(path: Path) -> bool:
    """Whether there is such a file. Where the disk does not tell, an OSError: it may be there."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _unlocked_folder(folder: Path) -> Iterator[Path]:
    """A folder of our own beside the one that cannot be locked; gone at the end."""
    place = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
