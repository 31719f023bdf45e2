"""A lock between processes: the kernel's (flock), which ends with its process, so there is no stale one."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

BUSY = (errno.EWOULDBLOCK, errno.EACCES)
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)  # of a file system without locks


class NoLocksError(OSError):
    """The file system has no locks."""


def open_lock(path: Path) -> int:
    """A handle of the file to lock, which is made where there is none. Closing it ends the lock."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def try_lock(handle: int) -> bool:
    """Lock an open file, without waiting; False while another process has it locked. Raises NoLocksError, or another
    OSError."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            raise NoLocksError(error.errno, error.strerror) from None
        if error.errno not in BUSY:
            raise
        return False
    return True
