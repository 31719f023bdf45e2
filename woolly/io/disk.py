"""Files and folders of our own: private, named when they are complete, made to last through a power cut.

What always holds of a file that `write_atomically` or `move` names, whatever is killed: its name has the old file or
the new one, never a part. What a killed process leaves behind begins with PART. An error of the disk is a FileError by
`disk_fault`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from woolly.errors import BusyError, FileError, WoollyError, printable

ROOM = "make room, or change the permissions"
PART = ".part-"  # how the names of unfinished files begin
PRIVATE = 0o600


def make_private_folder(folder: Path) -> None:
    """Make the folder and those above it, for their user alone. A new folder whose name begins with `~` is refused."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            if place.name.startswith("~"):
                raise FileNotFoundError(errno.ENOENT, "there is no such user", str(place))
            place.mkdir(mode=0o700, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """An `opener` for `open`: a new file is for its user alone."""
    return os.open(path, flags, PRIVATE)


def sync_folder(folder: Path) -> None:
    """Make a rename inside a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(
    target: Path, pieces: Iterable[bytes], *, mode: int = PRIVATE, durable: bool = True, replace: bool = True
) -> None:
    """Write a file under another name, then name it.

    durable: it outlives a power cut from then on; for a file that carries its digest, False is enough. replace: False
    keeps a file that has the name already.
    """
    part = target.with_name(f"{PART}{target.name[:64]}-{secrets.token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        with open(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            if mode != PRIVATE:
                os.fchmod(handle, mode)
            if durable:
                file.flush()
                os.fsync(handle)
        if replace:
            os.replace(part, target)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(part, target)
            os.unlink(part)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    if durable:
        sync_folder(target.parent)


def move(path: Path, to: Path) -> None:
    """Give a complete file its name, and make that last; where that fails, it has the name that it had."""
    os.replace(path, to)
    try:
        sync_folder(to.parent)
    except OSError:
        with contextlib.suppress(OSError):
            os.replace(to, path)
        raise


def write_all(write: Callable[[memoryview], int | None], data: bytes | bytearray) -> None:
    """Write until all is written: an unbuffered file may take less at once."""
    with memoryview(data) as left:
        while left:
            left = left[write(left) or 0 :]


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
