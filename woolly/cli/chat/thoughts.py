"""Telling the thoughts of a model from its answer, while both are still coming."""

from __future__ import annotations

from typing import Literal, TypeAlias

OPEN, CLOSE = "<think>", "</think>"

Piece: TypeAlias = tuple[Literal["thoughts", "words"], str]


class Thoughts:
    """Splits an answer that may begin with thoughts between tags; the tags are in neither part.

    inside: the prompt has opened the thoughts already. Tags anywhere later are words like others. Text is held back
    only while it may still be part of a tag.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._state: Literal["begin", "thoughts", "gap", "words"] = "thoughts" if inside else "begin"
        self._held = ""
        self._begun = False  # thoughts have been given out

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain now."""
        self._held += text
        pieces: list[Piece] = []
        if self._state == "begin":
            start = self._held.lstrip()
            if start.startswith(OPEN):
                self._state, self._held = "thoughts", start[len(OPEN) :]
            elif not OPEN.startswith(start):
                self._state = "words"
        if self._state == "thoughts":
            before, close, after = (self._held if self._begun else self._held.lstrip()).partition(CLOSE)
            keep = 0 if close else _beginning(before, CLOSE)
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

    def flush(self) -> list[Piece]:
        """What was held back, at the end of the answer."""
        kind: Literal["thoughts", "words"] = "thoughts" if self._state == "thoughts" else "words"
        held, self._held = self._held, ""
        return [(kind, held)] if held else []


def _beginning(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next((n for n in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-n:])), 0)
