"""The tokens of a step: all rows in one native call; a row that uses a stage without a twin is picked in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly.engine.sampling import STAGES, Logits, has_twin, pick
from woolly.engine.sequence import Sequence
from woolly.native import PICK_ROW

Choosing: TypeAlias = list[tuple[Sequence, int]]  # a sequence, and the row of logits that chooses its next token
PickRows: TypeAlias = Callable[[Logits, NDArray[np.void]], list[int]]  # native.pick

_values = attrgetter(*(stage.name for stage in STAGES if stage.native))


class Sampler:
    """Picks at most `most` tokens at once; without `pick_rows` all of them in NumPy."""

    __slots__ = ("_pick_rows", "_rows")

    def __init__(self, most: int, pick_rows: PickRows | None) -> None:
        self._pick_rows = pick_rows
        self._rows = np.zeros(most, PICK_ROW)

    def tokens(self, logits: Logits, choosing: Choosing) -> list[int]:
        """The token of each, or NO_TOKEN. Once a step."""
        tokens = [0] * len(choosing)
        natively: list[int] = []
        for index, (sequence, row) in enumerate(choosing):
            sampling, position = sequence.sampling, len(sequence.tokens)
            if self._pick_rows is not None and has_twin(sampling):
                self._rows[len(natively)] = (row, -1, sequence.seed, position, *_values(sampling))
                natively.append(index)
            else:
                tokens[index] = pick(logits[row], sampling, seed=sequence.seed, position=position)
        if natively and self._pick_rows is not None:
            picked = self._pick_rows(logits, self._rows[: len(natively)])
            for index, token in zip(natively, picked, strict=True):
                tokens[index] = token
        return tokens
