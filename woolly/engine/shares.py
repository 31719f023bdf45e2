"""Shares: whose prompt is computed next, fair between keys and quick for what is short.

Among keys, the one that has had the fewest rows comes first; a key that was idle gains nothing by that. Among the
prompts of a key, the one comes first whose length, added to the rows that the engine had granted when it came, is
smallest: short prompts overtake, but no prompt waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from woolly.engine.sequence import Sequence

KEYS = 1024  # that are remembered


class Shares:
    """Owned by the engine thread."""

    __slots__ = ("_granted", "_had", "_level")

    def __init__(self) -> None:
        self._granted = 0  # rows, to all
        self._had: dict[str, int] = {}  # rows of a key, counted from the level at which it came
        self._level = 0  # rows of the key that got rows last; a key that comes now begins here

    def enter(self, sequence: Sequence) -> None:
        """A sequence has come. Once each."""
        sequence.due = self._granted + len(sequence.tokens)

    def line(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """In the order in which they are to be computed; answers that were put back, and have to be restored, first."""
        return sorted(sequences, key=lambda s: (len(s.tokens) == s.prompt, self._place(s.options.key), s.due))

    def give(self, sequence: Sequence, rows: int) -> None:
        """Count rows of the next step that go to this sequence."""
        key = sequence.options.key
        self._level = self._place(key)
        self._had.pop(key, None)
        self._had[key] = self._level + rows
        self._granted += rows
        if len(self._had) > KEYS:
            del self._had[next(iter(self._had))]  # the one that got rows longest ago

    def _place(self, key: str) -> int:
        return max(self._had.get(key, 0), self._level)
