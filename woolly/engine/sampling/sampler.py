"""The tokens of a step: all rows in one native call; a row that uses a stage without a twin is picked in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from woolly.device.runner import PICK_ROW, Runner
from woolly.engine.answer import AnswerState
from woolly.engine.sampling.stages import Logits, Masks

Choosing: TypeAlias = list[tuple[AnswerState, int, int]]  # an answer, a row of logits, the position it chooses for


class Sampler:
    """Picks at most `most` tokens at once of a runner's logits."""

    __slots__ = ("_bytes", "_output", "_pick", "_rows")

    def __init__(self, most: int, runner: Runner) -> None:
        self._pick, self._output = runner.pick, runner.output.name
        self._rows = np.zeros(most, PICK_ROW)
        self._bytes = self._rows.view(np.uint8)

    def tokens(self, outputs: Mapping[str, Logits], choosing: Choosing, masks: Masks | None = None) -> list[int]:
        """The token of each, or NO_TOKEN. Once a step. masks: a row for each row of logits, read for formats."""
        rows, count = self._rows, 0
        for answer, row, position in choosing:
            if answer.native_values is not None:
                mask = -1 if answer.matcher is None else row
                rows[count] = (row, mask, answer.seed, position, *answer.native_values)
                count += 1
        picked = self._pick(self._bytes, count, masks) if count else []
        if count == len(choosing):
            return picked
        natively, logits = iter(picked), outputs[self._output]
        return [
            next(natively)
            if answer.native_values is not None
            else answer.pick(logits[row], position, None if masks is None or answer.matcher is None else masks[row])
            for answer, row, position in choosing
        ]
