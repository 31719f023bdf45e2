"""The masks of a step, written by a thread of their own while the runner computes the logits that they are for.

A mask depends on the tokens before it alone, and these are known, or guessed, when the step begins. Row r belongs to
row r of the logits. While a step runs, its matchers are that thread's; before and after they are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from woolly.engine.constrain import Matcher
from woolly.engine.sampling import Masks
from woolly.engine.scheduler import Step

Jobs: TypeAlias = list[tuple[Matcher, int, list[int]]]  # a matcher, the row of its mask, the draft behind it


class StepMasks:
    """rows: None until an answer has a format."""

    __slots__ = ("_most", "_thread", "rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._thread: ThreadPoolExecutor | None = None
        self.rows: Masks | None = None

    @contextmanager
    def beside(self, step: Step) -> Iterator[None]:
        """Write the masks of the tokens that a step chooses, while the block is at work. Once a turn."""
        jobs: Jobs = []
        row = 0
        for span in step:
            row += len(span.want)
            sequence = span.sequence
            drafted = span.want.stop - len(sequence.tokens)
            if sequence.matcher is not None and drafted >= 0:
                jobs.append((sequence.matcher, row - 1 - drafted, sequence.draft[:drafted]))
        if not jobs:
            yield
            return
        if self._thread is None or self.rows is None:
            self._thread = ThreadPoolExecutor(1, "woolly-masks")
            self.rows = np.zeros((self._most, jobs[0][0].words), np.uint32)
        writing = self._thread.submit(_write, jobs, self.rows)
        try:
            yield
        finally:
            writing.result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()


def _write(jobs: Jobs, rows: Masks) -> None:
    for matcher, row, draft in jobs:
        matcher.fill_ahead(list(rows[row : row + 1 + len(draft)]), draft)
