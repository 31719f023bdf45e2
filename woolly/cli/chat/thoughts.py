"""Telling the thoughts of a model from its answer, while both are still coming."""

from __future__ import annotations

from typing import Literal, TypeAlias

from woolly.request import THOUGHTS

Piece: TypeAlias = tuple[Literal["thoughts", "words"], str]


class Thoughts:
    """Splits an answer that may begin with thoughts between two marks; the marks are in neither part.

    inside: the prompt has opened the thoughts already, and this mark closes them. Marks anywhere later are words like
    others. Text is held back only while it may still be part of a mark.
    """

    def __init__(self, *, inside: str = "") -> None:
        self._state: Literal["begin", "thoughts", "gap", "words"] = "thoughts" if inside else "begin"
        self._closing = inside
        self._held = ""
        self._begun = False  # thoughts have been given out

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        self._held += text
        pieces: list[Piece] = []
        if self._state == "begin":
            self._begin(self._held.lstrip())
        if self._state == "thoughts":
            before, close, after = (self._held if self._begun else self._held.lstrip()).partition(self._closing)
            keep = 0 if close else _beginning(before, self._closing)
            pieces.append(("thoughts", before[: len(before) - keep]))
            self._begun = self._begun or len(before) > keep
            self._held = after if close else before[len(before) - keep :]
            self._state = "gap" if close else "thoughts"
        if self._state == "gap":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "words"
        if self._state == "words":
            pieces.append(("words", self._held))
            self._held = ""
        return [piece for piece in pieces if piece[1]]

    def _begin(self, start: str) -> None:
        for opening, closing in THOUGHTS:
            if start.startswith(opening):
                self._state, self._held, self._closing = "thoughts", start[len(opening) :], closing
                return
        if not any(opening.startswith(start) for opening, _ in THOUGHTS):
            self._state = "words"

    def flush(self) -> list[Piece]:
        """What was held back, at the end of the answer."""
        kind: Literal["thoughts", "words"] = "thoughts" if self._state == "thoughts" else "words"
        held, self._held = self._held, ""
        return [(kind, held)] if held else []


def _beginning(text: str, mark: str) -> int:
    """How many characters at the end of the text may be the beginning of the mark."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-n:])), 0)
