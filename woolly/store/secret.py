"""A secret of the user that stays the same: one private file, made once."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path

from woolly.errors import printable
from woolly.io.disk import make_private_folder, private_opener

NBYTES = 32

_log = logging.getLogger("woolly")


def read_secret(path: Path) -> bytes:
    """The secret in a file. Where there is none it is made, whole, by one of the processes that want it.

    Where the file cannot be used, the secret is another one at each start.
    """
    try:
        make_private_folder(path.parent)
        if not path.exists():
            _make(path)
        data = path.read_bytes()
        if len(data) != NBYTES or path.stat().st_mode & 0o077:
            raise OSError(f"it is not {NBYTES} bytes that its user alone can read; remove it, and a new one is made")
        return data
    except OSError as error:
        reason = printable(error.strerror or error)
        _log.warning("woolly: '%s' cannot be used: %s; prompts are not remembered over a restart", path, reason)
        return secrets.token_bytes(NBYTES)


def _make(path: Path) -> None:
    part = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        with open(part, "xb", opener=private_opener) as file:
            file.write(secrets.token_bytes(NBYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process has made it
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
