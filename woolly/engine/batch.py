"""A step, written into the runner's own arrays. Rows of a sequence stand together: a span."""

from __future__ import annotations

from woolly.engine.scheduler import Step
from woolly.native import Batch, StepSize
from woolly.native.batch import NO_ADAPTER


def fill(batch: Batch, step: Step) -> StepSize:
    """Write a step down, and tell how much of each array it uses. Once a turn."""
    row = want = positions = 0
    for index, span in enumerate(step):
        sequence, first, count = span.sequence, span.first, span.count
        if count == 1:
            batch.tokens[row] = sequence.tokens[first]
        else:
            batch.tokens[row : row + count] = sequence.tokens[first : first + count]
        batch.spans[index] = (row, count, first, sequence.slot, NO_ADAPTER)
        if sequence.table is not None:
            batch.pages[:, index, : sequence.page_count] = sequence.table[:, : sequence.page_count]
        if len(span.want) == 1:
            batch.want[want] = row + span.want.start - first
        elif span.want:
            batch.want[want : want + len(span.want)] = range(row + span.want.start - first, row + count)
        want += len(span.want)
        row += count
        positions = max(positions, first + count)
    return StepSize(row, len(step), want, 0, positions)
