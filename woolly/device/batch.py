"""Batch: the arrays that a step is read from. They are the core's own, so nothing is copied on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from woolly.errors import NativeError

Ints = NDArray[np.int32]

NO_SLOT, NO_ADAPTER = -1, 0
SLOTS = -1  # stands for the slots where a page group is expected
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
    """The whole input of a step: ragged rows of several sequences, a span each. A runner's has room for any step."""

    tokens: Ints  # [rows]
    spans: Ints  # [spans, 5]: first row, count, position of the first, slot, adapter (1: scales)
    pages: Ints  # [groups, spans, pages of the context]: the cache pages of each, in order
    want: Ints  # [wants]: rows whose output is asked for
    copies: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int32))
    """[copies, 3]: page group (-1: slots), from, to; done before the first instruction."""
    scales: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """[spans, adapters]: of those whose adapter is 1."""

    @classmethod
    def empty(cls, *, rows: int, wants: int, sequences: int, groups: int, pages: int, adapters: int = 0) -> Batch:
        """For a runner that has no core."""
        shapes = ((rows,), (sequences, SPAN), (groups, sequences, pages), (wants,), (2 * sequences, 3))
        tokens, spans, table, want, copies = (np.zeros(shape, np.int32) for shape in shapes)
        return cls(tokens, spans, table, want, copies, np.zeros((sequences, adapters), np.float32))

    def put(self, step: Batch) -> StepSize:
        """Copy a step into the arrays. Spans may leave out slot and adapter, and pages the axis of a single group."""
        rows, spans, wants, copies = len(step.tokens), len(step.spans), len(step.want), len(step.copies)
        if rows > len(self.tokens) or spans > len(self.spans) or wants > len(self.want) or copies > len(self.copies):
            raise NativeError(
                f"a step of {rows} rows, {spans} sequences, {wants} wanted outputs and {copies} copies is too large; "
                f"{len(self.tokens)}, {len(self.spans)}, {len(self.want)} and {len(self.copies)} are the most"
            )
        self.tokens[:rows] = step.tokens
        self.spans[:spans, 3:] = NO_SLOT, NO_ADAPTER
        self.spans[:spans, : step.spans.shape[1]] = step.spans
        self.pages[:, :spans, : step.pages.shape[-1]] = step.pages
        self.want[:wants] = step.want
        self.copies[:copies] = step.copies
        if len(step.scales):
            self.scales[:spans] = step.scales
        end = max((count + position for _, count, position, *_ in step.spans.tolist()), default=0)
        return StepSize(rows, spans, wants, copies, end)
