"""What a terminal is shown: a progress bar, sizes for people, and text that cannot take the terminal over."""

from __future__ import annotations

import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import TextIO

BAR = 30  # characters
SOON = 1.0  # seconds: a shorter wait needs no bar
MB = 1_000_000


def draws(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which a line can be drawn over; a dumb one gets whole lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def progress_bar(what: str, *, quiet: bool = False) -> Callable[[int, int], None]:
    """A callback that draws a bar with speed and time left on standard error, drawn over as it goes on.

    Where that is no terminal, it says once what is being done; quiet, nothing at all.
    """
    ended = False
    first: tuple[float, int] | None = None  # when, and how much was there: what an earlier run brought is no speed

    def draw(done: int, total: int) -> None:
        nonlocal first, ended
        if ended:
            return  # its line has ended; the checks that follow show nothing
        ended = done == total
        now = time.monotonic()
        first = first or (now, done)
        filled = BAR * done // total if total else BAR
        amount = f"{done // MB} of {total // MB} MB{_pace(done - first[1], now - first[0], total - done)}"
        line = f"{what} [{'#' * filled}{' ' * (BAR - filled)}] {amount}"
        width = shutil.get_terminal_size().columns - 1
        line = line if len(line) <= width else f"{what} {amount}"[:width]
        print(f"\r{line}\x1b[K", end="\n" if done == total else "", file=sys.stderr, flush=True)

    def tell(done: int, total: int) -> None:
        nonlocal ended
        if not ended and not quiet:
            ended = True
            print(f"{what}, {total // MB} MB", file=sys.stderr, flush=True)

    return draw if draws(sys.stderr) and not quiet else tell


def loading_bar(name: str, *, quiet: bool = False) -> Callable[[int, int], None] | None:
    """The same for a model that is being loaded, on a terminal alone, and only if it takes long."""
    if quiet or not draws(sys.stderr):
        return None
    bar, begin, shown = progress_bar(f"loading {name}"), time.monotonic(), False

    def draw(done: int, total: int) -> None:
        nonlocal shown
        shown = shown or (done < total and time.monotonic() - begin > SOON)
        if shown:
            bar(done, total)

    return draw


def _pace(came: int, seconds: float, left: int) -> str:
    """Speed, and time left at that speed; nothing before there is something to tell."""
    if seconds < 0.5 or came <= 0:
        return ""
    rate = came / seconds
    if not left:
        return f", {rate / MB:.1f} MB/s"
    return f", {rate / MB:.1f} MB/s, {time_left(left / rate)} left"


def time_left(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def size(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.2f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:,.1f} MB"


def harmless(text: str) -> str:
    """The text with everything escaped that moves the cursor, changes colours, rings, or hides and turns letters.

    Line ends and tabs stay. A model's answer may hold what a hostile page told it to write.
    """
    return "".join(c.encode("unicode_escape").decode("ascii") if _acts(c) else c for c in text)


def _acts(c: str) -> bool:
    """Whether a character does something instead of being seen; joiners and marks of ordinary writing do not count."""
    return unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t\u00ad\u200c\u200d\u200e\u200f"
