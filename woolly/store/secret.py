"""A secret of the user that stays the same: one private file, made once."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from woolly.errors import printable
from woolly.io.disk import make_private_folder, write_atomically

NBYTES = 32

_log = logging.getLogger("woolly")


def read_secret(path: Path) -> bytes:
    """The secret in a file. Where there is none it is made, whole, by one of the processes that want it.

    Where the file cannot be used, the secret is another one at each start.
    """
    try:
        make_private_folder(path.parent)
        if not path.exists():
            write_atomically(path, [secrets.token_bytes(NBYTES)], replace=False)
        data = path.read_bytes()
        if len(data) != NBYTES or path.stat().st_mode & 0o077:
            raise OSError(f"it is not {NBYTES} bytes that its user alone can read; remove it, and a new one is made")
        return data
    except OSError as error:
        reason = printable(error.strerror or error)
        _log.warning("woolly: '%s' cannot be used: %s; prompts are not remembered over a restart", path, reason)
        return secrets.token_bytes(NBYTES)
