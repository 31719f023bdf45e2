"""Woolly's own files and folders: private, made to last through a power cut; an error of the disk is a FileError."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from woolly.errors import BusyError, FileError, WoollyError, printable

ROOM = "make room, or change the permissions"


def make_private_folder(folder: Path) -> None:
    """Make the folder and those above it, for their user alone. A new folder whose name begins with `~` is refused."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            if place.name.startswith("~"):
                raise FileNotFoundError(errno.ENOENT, "there is no such user", str(place))
            place.mkdir(mode=0o700, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """An `opener` for `open`: a new file is for its user alone."""
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Make a rename inside a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_fault(what: str, error: Exception, *, suggestion: str = ROOM, code: str = "") -> WoollyError:
    """The error to raise for a call that failed: `disk_full` or `disk_error`, unless another code is given. A BusyError
    where descriptors or memory ran out: nothing is wrong with the file, and the next try may do."""
    number, reason = getattr(error, "errno", 0), printable(getattr(error, "strerror", None) or error)
    if number == errno.ENOMEM:
        return BusyError(f"{what}: {reason}", suggestion="try again", code="not_enough_memory")
    if number in (errno.EMFILE, errno.ENFILE):
        return BusyError(f"{what}: {reason}", suggestion="try again, or raise the limit of open files (`ulimit -n`)")
    disk_code = "disk_full" if number in (errno.ENOSPC, errno.EDQUOT) else "disk_error"
    return FileError(f"{what}: {reason}", suggestion=suggestion, code=code or disk_code)


@contextlib.contextmanager
def disk_faults(what: str, *, suggestion: str = ROOM) -> Iterator[None]:
    """An OSError within the block becomes the error of `disk_fault`."""
    try:
        yield
    except OSError as error:
        raise disk_fault(what, error, suggestion=suggestion) from error


def models_faults(models: Path) -> AbstractContextManager[None]:
    """The same, where a model is written into the models folder."""
    return disk_faults(
        f"the models folder {printable(models, 300)} cannot take the model",
        suggestion="make room or change its permissions, or set WOOLLY_MODELS_DIR to another folder",
    )
