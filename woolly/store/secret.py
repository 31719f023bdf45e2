"""A secret of the user that stays the same: one private file, made once."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path

from woolly.errors import printable
from woolly.store.disk import make_private, own

NBYTES = 32

_log = logging.getLogger("woolly")


def secret(path: Path) -> bytes:
    """The secret in a file, which is made if it is not there: whole, and by one process of several that want to.

    Where there can be none, it is another one for each start.
    """
    try:
        make_private(path.parent)
        if not path.exists():
            _make(path)
        found = path.read_bytes()
        if len(found) != NBYTES or path.stat().st_mode & 0o077:
            raise OSError(f"it is not {NBYTES} bytes that its user alone can read; remove it, and a new one is made")
        return found
    except OSError as error:
        reason = printable(error.strerror or error)
        _log.warning("woolly: '%s' cannot be used: %s; prompts are not remembered over a restart", path, reason)
        return secrets.token_bytes(NBYTES)


def _make(path: Path) -> None:
    part = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with open(part, "xb", opener=own) as file:
            file.write(secrets.token_bytes(NBYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
