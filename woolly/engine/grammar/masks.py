"""The masks of a step, written by a thread of their own while the runner computes the logits that they are for.

A mask depends on the tokens before it alone, and these are known, or guessed, when the step begins. Row r belongs to
row r of the logits. While a step runs, its matchers belong to that thread; before and after, to the engine's thread.

Nobody waits for a mask that takes too long. Its thread cannot be stopped: it keeps the array and the matcher that it
works on, until a limit of llguidance ends it, and another thread goes on with a new array. The answers of that grammar
have no mask, and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeAlias

import numpy as np

from woolly.engine.grammar.constrain import Matcher
from woolly.engine.sampling.stages import Masks
from woolly.engine.scheduler import Step
from woolly.engine.work_clock import WorkClock, work_clock
from woolly.errors import WoollyError
from woolly.limits import LIMITS
from woolly.system import check_thread

# A matcher, the row of its mask, the draft behind it: masks of drafts are quick (draft.py), so all share one limit.
Jobs: TypeAlias = list[tuple[Matcher, int, list[int]]]


class StepMasks:
    """rows: None until an answer has a format."""

    __slots__ = ("_most", "_thread", "rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._thread: ThreadPoolExecutor | None = None
        self.rows: Masks | None = None

    @contextmanager
    def compute_during(self, step: Step) -> Iterator[None]:
        """Write the masks of the tokens that a step chooses, while the block runs the step. Once a turn."""
        jobs: Jobs = []
        row = 0
        for span in step:
            row += len(span.want)
            sequence = span.sequence
            matcher, drafted = sequence.answer.matcher, span.want.stop - len(sequence.tokens)
            if matcher is not None and drafted >= 0:
                jobs.append((matcher, row - 1 - drafted, sequence.draft[:drafted]))
        if not jobs:
            yield
            return
        if self.rows is None:
            self.rows = np.zeros((self._most, jobs[0][0].words), np.uint32)
        work, done = self._begin(jobs, self.rows)
        try:
            yield
        finally:
            while (late := work.wait(done)) is not None:
                jobs[late][0].grammar.slow = True
                self.rows, self._thread = self.rows.copy(), None
                jobs = jobs[late:]
                work, done = self._begin(jobs, self.rows)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()

    def _begin(self, jobs: Jobs, rows: Masks) -> tuple[_Writing, Future[None]]:
        if self._thread is None:
            check_thread()
            self._thread = ThreadPoolExecutor(1, "woolly-masks")
        work = _Writing(jobs, rows)
        return work, self._thread.submit(work.run)


class _Writing:
    """The masks of some jobs, one after another, and how long its thread has been at work on the present one."""

    __slots__ = ("_at", "_begun_s", "_clock", "_jobs", "_rows")

    def __init__(self, jobs: Jobs, rows: Masks) -> None:
        self._jobs, self._rows = jobs, rows
        self._at, self._begun_s = 0, 0.0
        self._clock: WorkClock | None = None  # none until its thread has begun

    def run(self) -> None:
        clock = work_clock()
        for at, (matcher, row, draft) in enumerate(self._jobs):
            self._begun_s, self._at = clock.read(), at
            self._clock = clock
            masks = list(self._rows[row : row + 1 + len(draft)])
            if matcher.grammar.slow:
                masks[0][:] = 0
            else:
                with suppress(WoollyError):  # the matcher keeps the error, which ends its answer
                    matcher.fill_ahead(masks, draft)

    def wait(self, done: Future[None]) -> int | None:
        """Wait for the masks; the job that takes too long, if one does."""
        while True:
            at = self._at
            try:
                done.result(LIMITS.mask_s)
                return None
            except TimeoutError:
                if self._at == at and self._worked_s() > LIMITS.mask_s:
                    return at

    def _worked_s(self) -> float:
        return self._clock.read() - self._begun_s if self._clock is not None else 0.0
