"""Batch: a step as flat arrays, the whole input of the runner.

The arrays are made once, for the largest step, and filled again and again; a Batch is views into them and is valid
until the next fill. Rows of a sequence stand together: a span.
"""

from __future__ import annotations

import numpy as np

from woolly.engine.scheduler import Step
from woolly.native import Batch
from woolly.plan import Bounds


class Arrays:
    """The memory of all batches to come, of at most `bounds`; a sequence has at most `pages` pages."""

    __slots__ = ("_batch", "_pages", "_shape", "_spans", "_tokens", "_want")

    def __init__(self, bounds: Bounds, pages: int) -> None:
        self._tokens = np.zeros(bounds.rows, np.int32)
        self._spans = np.zeros((bounds.sequences, 3), np.int32)  # first row, count, first position
        self._pages = np.zeros((bounds.sequences, pages), np.int32)
        self._want = np.zeros(bounds.wants, np.int32)
        self._shape = (-1, -1, -1)
        self._batch: Batch

    def fill(self, step: Step) -> Batch:
        """Write a step down. Once a turn."""
        row = want = 0
        for index, span in enumerate(step):
            sequence, first, count = span.sequence, span.first, span.count
            if count == 1:
                self._tokens[row] = sequence.tokens[first]
            else:
                self._tokens[row : row + count] = sequence.tokens[first : first + count]
            self._spans[index] = (row, count, first)
            self._pages[index, : sequence.held] = sequence.table[: sequence.held]
            if len(span.want) == 1:
                self._want[want] = row + span.want.start - first
            elif span.want:
                self._want[want : want + len(span.want)] = range(row + span.want.start - first, row + count)
            want += len(span.want)
            row += count
        shape = (row, len(step), want)
        if shape != self._shape:
            self._shape = shape
            self._batch = Batch(
                tokens=self._tokens[:row],
                spans=self._spans[: len(step)],
                pages=self._pages[: len(step)],
                want=self._want[:want],
            )
        return self._batch
