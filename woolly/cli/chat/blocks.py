"""Markdown cut into blocks while it is still coming: a finished block is drawn once and never again."""

from __future__ import annotations

import re

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})(?!.*`)|\s{0,3}(~{3,})")
_ITEM = re.compile(r"\s{0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")


class Blocks:
    """A block ends at a blank line or with its fence; a list goes on over blank lines while its text is indented."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""  # the last line, which has no end yet
        self._fence = ""  # the mark that closes the open fence, or empty
        self._gap = False  # a list was followed by a blank line

    @property
    def open(self) -> str:
        """The block that is not finished."""
        return "\n".join([*self._lines, self._line] if self._line else self._lines)

    @property
    def fence(self) -> str:
        """The first line of the fence that is open and is the whole block, "" if there is none."""
        return self._lines[0] if self._fence and _FENCE.match(self._lines[0]) else ""

    def feed(self, text: str) -> list[str]:
        """The blocks that are finished now."""
        *lines, self._line = (self._line + text).split("\n")
        finished: list[str] = []
        for line in lines:
            self._take(line, finished)
        return finished

    def flush(self) -> list[str]:
        """The last block, at the end of the text."""
        finished = self.feed("\n") if self._line else []
        self._fence = ""
        self._finish(finished)
        return finished

    def _take(self, line: str, finished: list[str]) -> None:
        if self._fence:
            self._lines.append(line)
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
                if not self._is_list():
                    self._finish(finished)
            return
        if not line.strip():
            if self._is_list():
                self._gap = True
                self._lines.append("")
            else:
                self._finish(finished)
            return
        opening = _FENCE.match(line)
        inside = self._is_list() and line[:1] in " \t"
        if not inside and (self._gap or opening):
            self._finish(finished)
        self._gap = False
        self._lines.append(line)
        if opening or (inside and (opening := _FENCE.match(line.lstrip()))):
            self._fence = opening[1] or opening[2]

    def _is_list(self) -> bool:
        return bool(self._lines) and _ITEM.match(self._lines[0]) is not None

    def _finish(self, finished: list[str]) -> None:
        if any(line.strip() for line in self._lines):
            finished.append("\n".join(self._lines))
        self._lines, self._gap = [], False
