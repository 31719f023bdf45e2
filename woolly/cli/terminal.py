"""What a terminal is shown: a progress bar, and text that cannot take the terminal over."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable

BAR = 30  # characters
MB = 1_000_000


def progress_bar(what: str) -> Callable[[int, int], None]:
    """A callback that draws a bar on standard error; where that is no terminal, it says once what is being done."""
    told = False

    def draw(done: int, total: int) -> None:
        filled = BAR * done // total
        end = "\n" if done == total else ""
        print(
            f"\r{what} [{'#' * filled}{' ' * (BAR - filled)}] {done // MB} of {total // MB} MB",
            end=end,
            file=sys.stderr,
            flush=True,
        )

    def tell(done: int, total: int) -> None:
        nonlocal told
        if not told:
            told = True
            print(f"{what}, {total // MB} MB", file=sys.stderr, flush=True)

    return draw if sys.stderr.isatty() else tell


def harmless(text: str) -> str:
    """The text with everything escaped that moves the cursor, changes colours, rings, or hides and turns letters.

    Line ends and tabs stay. A model's answer may hold what a hostile page told it to write.
    """
    return "".join(c.encode("unicode_escape").decode("ascii") if _acts(c) else c for c in text)


def _acts(c: str) -> bool:
    """Whether a character does something instead of being seen; joiners and marks of ordinary writing do not count."""
    return unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t\u00ad\u200c\u200d\u200e\u200f"
