"""Output for a terminal: a progress bar, sizes for people, and text whose control characters are escaped."""

from __future__ import annotations

import os
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable
from typing import TextIO

BAR = 30  # characters
QUICK_S = 1.0  # seconds: a shorter wait needs no bar
MB = 1_000_000


def can_redraw(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which a line can be redrawn; TERM=dumb cannot."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def progress_bar(what: str, *, quiet: bool = False) -> Callable[[int, int], None]:
    """A callback that redraws a bar with speed and time left on standard error.

    Where that is no terminal, it prints one line at its first call; with quiet, nothing at all.
    """
    ended = False
    first: tuple[float, int] | None = None  # time and bytes at the first call: earlier bytes do not count for the speed

    def draw(done: int, total: int) -> None:
        nonlocal first, ended
        if ended:
            return  # the line of the bar has ended
        ended = done == total
        now = time.monotonic()
        first = first or (now, done)
        filled = BAR * done // total if total else BAR
        amount = f"{done // MB} of {total // MB} MB{_pace(done - first[1], now - first[0], total - done)}"
        line = f"{what} [{'#' * filled}{' ' * (BAR - filled)}] {amount}"
        width = shutil.get_terminal_size().columns - 1
        line = line if len(line) <= width else f"{what} {amount}"[:width]
        print(f"\r{line}\x1b[K", end="\n" if done == total else "", file=sys.stderr, flush=True)

    def print_once(done: int, total: int) -> None:
        nonlocal ended
        if not ended and not quiet:
            ended = True
            print(f"{what}, {total // MB} MB", file=sys.stderr, flush=True)

    return draw if can_redraw(sys.stderr) and not quiet else print_once


def loading_bar(name: str, *, quiet: bool = False) -> Callable[[int, int], None] | None:
    """A progress bar for a model that is being loaded, on a terminal alone, and only if loading takes long."""
    if quiet or not can_redraw(sys.stderr):
        return None
    bar, begin, shown = progress_bar(f"loading {name}"), time.monotonic(), False

    def draw(done: int, total: int) -> None:
        nonlocal shown
        shown = shown or (done < total and time.monotonic() - begin > QUICK_S)
        if shown:
            bar(done, total)

    return draw


def _pace(done_since: int, seconds: float, left: int) -> str:
    """Speed, and time left at that speed; empty in the first half second."""
    if seconds < 0.5 or done_since <= 0:
        return ""
    rate = done_since / seconds
    if not left:
        return f", {rate / MB:.1f} MB/s"
    return f", {rate / MB:.1f} MB/s, {time_left(left / rate)} left"


def time_left(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def size(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.2f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:,.1f} MB"


def escape_controls(text: str) -> str:
    """The text with everything escaped that moves the cursor, changes colours, rings, or hides and turns letters.

    Line ends and tabs stay. A model's answer may hold what a hostile page told it to write.
    """
    return "".join(c.encode("unicode_escape").decode("ascii") if _is_control(c) else c for c in text)


def _is_control(c: str) -> bool:
    """Whether a character acts instead of being shown; joiners and marks of ordinary writing do not count."""
    return unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t\u00ad\u200c\u200d\u200e\u200f"
