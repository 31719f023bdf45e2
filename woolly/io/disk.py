"""Woolly's own files and folders: private, made to last through a power cut; an error of the disk is a FileError."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from woolly.errors import FileError, WoollyError, printable


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


def disk_code(error: Exception) -> str:
    """The code of an error of the disk: `disk_full` or `disk_error`."""
    return "disk_full" if getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT) else "disk_error"


@contextlib.contextmanager
def disk_errors(models: Path) -> Iterator[None]:
    """An OSError within the block becomes a FileError that names the folder."""
    try:
        yield
    except WoollyError:
        raise
    except OSError as error:
        raise FileError(
            f"the models folder {printable(models, 300)} cannot take the model: {printable(error.strerror or error)}",
            suggestion="make room or change its permissions, or set WOOLLY_MODELS_DIR to another folder",
            code=disk_code(error),
        ) from error
