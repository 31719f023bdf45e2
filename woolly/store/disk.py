"""Files and folders of our own on the disk: private, lasting, and one line when the disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from woolly.errors import FileError, WoollyError, printable


def make_private(folder: Path) -> None:
    """The folder and those above it; what is new is for its user alone. `~somebody` who is not here gets none."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            if place.name.startswith("~"):
                raise FileNotFoundError(errno.ENOENT, "there is no such user", str(place))
            place.mkdir(mode=0o700, exist_ok=True)


def own(path: str, flags: int) -> int:
    """An opener: what it makes is for its user alone."""
    return os.open(path, flags, 0o600)


def sync(folder: Path) -> None:
    """Make a rename inside a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_code(error: Exception) -> str:
    """The code of an error of the disk: full, or something else."""
    return "disk_full" if getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT) else "disk_error"


@contextlib.contextmanager
def disk_errors(models: Path) -> Iterator[None]:
    """What the disk refuses becomes a FileError that names the folder."""
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
