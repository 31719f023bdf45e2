"""One line on the terminal that says what is being done, and goes away again."""

from __future__ import annotations

import sys
from collections.abc import Callable

from woolly.cli.terminal import can_redraw


def status(*, quiet: bool = False) -> Callable[[str], None]:
    """A function that shows what is being done; "" takes the line away. Without a terminal that can redraw a line it
    does nothing: it would fill a log, and a dumb terminal shows the codes."""

    def show(what: str) -> None:
        print(f"\r\x1b[K{what}{' ...' if what else ''}", end="", file=sys.stderr, flush=True)

    return show if can_redraw(sys.stderr) and not quiet else lambda what: None
