"""Batch: the arrays that a step is read from. They are the core's own, so nothing is copied on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from woolly.errors import NativeError

Ints = NDArray[np.int32]

NO_SLOT, NO_ADAPTER = -1, 0
SPAN = 5  # numbers of a span


class StepSize(NamedTuple):
    """How much of each array a step uses."""

    rows: int
    spans: int
    wants: int
    copies: int
    positions: int  # one more than the last position of any span


@dataclass(frozen=True, slots=True)
class Batch:
    """The whole input of a step: ragged rows of several sequences, a span each. A runner's has room for the largest."""

    tokens: Ints  # [rows]
    spans: Ints  # [spans, 5]: first row, count, position of the first, slot, adapter
    pages: Ints  # [groups, spans, pages of the context]: the cache pages of each, in order
    want: Ints  # [wants]: rows whose output is asked for
    copies: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int32))
    """[copies, 3]: page group (-1: slots), from, to; done before the first instruction."""

    @classmethod
    def empty(cls, *, rows: int, wants: int, sequences: int, groups: int, pages: int) -> Batch:
        """For a runner that has no core."""
        shapes = ((rows,), (sequences, SPAN), (groups, sequences, pages), (wants,), (2 * sequences, 3))
        return cls(*(np.zeros(shape, np.int32) for shape in shapes))

    def put(self, step: Batch) -> StepSize:
        """Write a whole step down. Spans may leave out slot and adapter, and pages the axis of a single group."""
        spans = step.spans
        if spans.shape[1] < SPAN:
            spans = np.column_stack([spans, np.full(len(spans), NO_SLOT), np.full(len(spans), NO_ADAPTER)])
        pages = step.pages if step.pages.ndim == 3 else step.pages[None]
        end = int((spans[:, 1].astype(np.int64) + spans[:, 2]).max(initial=0))
        size = StepSize(len(step.tokens), len(spans), len(step.want), len(step.copies), end)
        for what, given, most in (
            ("rows", size.rows, len(self.tokens)),
            ("sequences", size.spans, len(self.spans)),
            ("wanted outputs", size.wants, len(self.want)),
            ("copies", size.copies, len(self.copies)),
        ):
            if given > most:
                raise NativeError(f"a step of {given} {what} is too large; {most} are the most")
        self.tokens[: size.rows] = step.tokens
        self.spans[: size.spans] = spans
        self.pages[:, : size.spans, : pages.shape[2]] = pages
        self.want[: size.wants] = step.want
        self.copies[: size.copies] = step.copies
        return size
