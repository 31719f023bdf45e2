"""One line on the terminal that says what is being done, and goes away again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def status(*, quiet: bool = False) -> Callable[[str], None]:
    """A function that shows what is being done; "" takes the line away. It is for terminals that can: it would fill a
    log, and a terminal called dumb shows the codes instead."""

    def show(what: str) -> None:
        print(f"\r\x1b[K{what}{' ...' if what else ''}", end="", file=sys.stderr, flush=True)

    able = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return show if able and not quiet else lambda what: None
