"""The terminal while an answer is generated.

Finished blocks of Markdown are written once and never again. The block that is open is drawn again when there is more
of it, at most eight times a second, and so that drawing takes no more than a tenth of the time: the cores are for the
model. The size of the terminal is asked for at every drawing, so a resize needs no signal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TextIO

from woolly.cli.chat.blocks import Blocks
from woolly.cli.terminal import escape_controls

PERIOD_S = 0.125
SHARE = 10  # drawing takes at most this part of the time: 1 / SHARE
DIM, NORMAL = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Appearance:
    """How an answer may look: Markdown rendered, thoughts and notes dimmed, control characters unescaped.

    marked: thoughts stand between marks, for a program that reads them.
    """

    markdown: bool = False
    dim: bool = False
    raw: bool = False
    marked: bool = False


def appearance_of(out: TextIO, environ: Mapping[str, str], *, plain: bool = False, raw: bool = False) -> Appearance:
    """The appearance that terminal and options allow; a file or a pipe gets the raw answer with its thoughts marked."""
    if not out.isatty():
        return Appearance(raw=True, marked=True)
    clever = moves_cursor(environ)
    return Appearance(markdown=clever and not plain and not raw, dim=clever and not environ.get("NO_COLOR"), raw=raw)


def moves_cursor(environ: Mapping[str, str]) -> bool:
    """Whether the terminal can move its cursor."""
    return environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def size_of(out: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal."""
    try:
        columns, rows = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        columns = rows = 0
    return columns or 80, rows or 24


class Screen:
    """Writes thoughts, words and notes; `end` finishes an answer."""

    def __init__(
        self,
        out: TextIO,
        appearance: Appearance,
        environ: Mapping[str, str],
        *,
        size: Callable[[], tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.appearance = appearance
        self._out, self._environ, self._clock = out, environ, clock
        self._size = size or (lambda: size_of(out))
        self._part: Literal["", "thoughts", "words"] = ""
        # the text written before thoughts, and between thoughts and the answer
        self._headings = ("", "\n") if appearance.dim else ("(thinks)\n", "(answers)\n")
        if appearance.marked:
            self._headings = ("<think>\n", "</think>\n\n")
        self._last = "\n"  # the last character that was written unrendered
        self._blocks = Blocks()
        self._shown: list[int] = []  # widths of the lines that show the open block
        self._first = True  # no block of this answer has been finished
        self._next_s = 0.0  # the earliest moment at which the open block is drawn again

    def prepare(self) -> None:
        """Import the renderer of Markdown before the first answer would wait for it."""
        if self.appearance.markdown:
            self._render("a *word*", 80)

    def thoughts(self, text: str) -> None:
        if self._part != "thoughts":
            self._part = "thoughts"
            self._out.write(self._headings[0])
        shown = self._shown_text(text)
        self._out.write(f"{DIM}{shown}{NORMAL}" if self.appearance.dim else shown)
        self._out.flush()
        self._last = text[-1]

    def words(self, text: str) -> None:
        if self._part == "thoughts":
            self._end_line()
            self._out.write(self._headings[1])
        self._part = "words"
        if not self.appearance.markdown:
            self._out.write(self._shown_text(text))
            self._out.flush()
            self._last = text[-1]
            return
        finished = self._blocks.feed(self._shown_text(text))
        now = self._clock()
        if finished or now >= self._next_s:
            self._draw(finished, open=True)
            taken = self._clock() - now
            self._next_s = now + max(PERIOD_S, SHARE * taken)

    def end(self) -> None:
        """Finish the answer, complete or cut off."""
        if self._part == "words" and self.appearance.markdown:
            self._draw(self._blocks.flush(), open=False)
        self._end_line()
        self._out.flush()
        self._part, self._first, self._next_s = "", True, 0.0

    def note(self, text: str) -> None:
        """A line that the program adds."""
        text = escape_controls(text)
        self._out.write(f"{DIM}{text}{NORMAL}\n" if self.appearance.dim else f"{text}\n")
        self._out.flush()

    def say(self, text: str) -> None:
        """Print lines of the program, undimmed, such as those of /help."""
        self._out.write(escape_controls(text) + "\n")
        self._out.flush()

    def _shown_text(self, text: str) -> str:
        return text if self.appearance.raw else escape_controls(text)

    def _end_line(self) -> None:
        if self._last != "\n":
            self._out.write("\n")
            self._last = "\n"

    def _draw(self, finished: list[str], *, open: bool) -> None:
        """Erase the open block, write the finished ones, and show the open one again, in one write."""
        columns, rows = self._size()
        parts = [self._erase(columns)]
        for block in finished:
            parts += ["" if self._first else "\n", *(line + "\n" for line in self._render(block, columns))]
            self._first = False
        lines = self._render(self._tail(rows), columns)[-max(1, rows - 2) :] if open else []
        if lines:
            parts.append("" if self._first else "\n")
            parts.append("\n".join(lines))
            lines = lines if self._first else ["", *lines]
        self._out.write("".join(parts))
        self._out.flush()
        self._shown = [_width(line) for line in lines]

    def _erase(self, columns: int) -> str:
        """Escape codes that erase the open block; a terminal that became narrower has wrapped its lines."""
        rows = sum(max(1, -(-width // columns)) for width in self._shown)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}\x1b[J" if rows else ""

    def _tail(self, rows: int) -> str:
        """The open block, or of a long piece of code only the last lines that fit."""
        text, fence = self._blocks.open, self._blocks.fence
        lines = text.split("\n")
        return "\n".join([fence, *lines[-rows:]]) if fence and len(lines) > rows + 1 else text

    def _render(self, block: str, columns: int) -> list[str]:
        if not block.strip():
            return []
        from woolly.cli.chat.markdown import render  # this import takes a tenth of a second; `prepare` makes it early

        return render(block, columns, self._environ)


def _width(line: str) -> int:
    from rich.cells import cell_len
    from rich.text import Text

    return cell_len(Text.from_ansi(line).plain)
