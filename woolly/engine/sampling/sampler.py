"""The tokens of a step: all rows in one native call; a row that uses a stage without a twin is picked in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly.device.cpu import PICK_ROW
from woolly.engine.answer import AnswerState
from woolly.engine.sampling.stages import Logits, Masks

Choosing: TypeAlias = list[tuple[AnswerState, int, int]]  # an answer, a row of logits, the position it chooses for
PickRows: TypeAlias = Callable[[Logits, NDArray[np.uint8], int, Masks | None], list[int]]  # cpu.pick


class Sampler:
    """Picks at most `most` tokens at once; without `pick_rows` all of them in NumPy."""

    __slots__ = ("_bytes", "_pick_rows", "_rows")

    def __init__(self, most: int, pick_rows: PickRows | None) -> None:
        self._pick_rows = pick_rows
        self._rows = np.zeros(most, PICK_ROW)
        self._bytes = self._rows.view(np.uint8)

    def tokens(self, logits: Logits, choosing: Choosing, masks: Masks | None = None) -> list[int]:
        """The token of each, or NO_TOKEN. Once a step. masks: a row for each row of logits, read for formats."""
        rows, count = self._rows, 0
        for answer, row, position in choosing if self._pick_rows is not None else ():
            if answer.native_values is not None:
                mask = -1 if answer.matcher is None else row
                rows[count] = (row, mask, answer.seed, position, *answer.native_values)
                count += 1
        picked = self._pick_rows(logits, self._bytes, count, masks) if count and self._pick_rows is not None else []
        if count == len(choosing):
            return picked
        natively = iter(picked)
        return [
            next(natively)
            if self._pick_rows is not None and answer.native_values is not None
            else answer.pick(logits[row], position, None if masks is None or answer.matcher is None else masks[row])
            for answer, row, position in choosing
        ]
