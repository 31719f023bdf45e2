"""A step, written into the runner's own arrays. Rows of a sequence stand together: a span."""

from __future__ import annotations

from collections.abc import Sequence as Several

from woolly.device import Batch, StepSize
from woolly.device.batch import SLOTS, SPAN
from woolly.engine.scheduler import Step
from woolly.engine.sequence import Sequence


class Writer:
    """Writes steps into a batch. Pages of a sequence are written only where they have changed, which is seldom.

    Single numbers go through memoryviews, which take them in half the time of an array.
    """

    __slots__ = ("_batch", "_spans", "_tokens", "_want", "_written")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._tokens, self._want, self._spans = batch.tokens.data, batch.want.data, batch.spans.reshape(-1).data
        self._written: list[tuple[Sequence | None, int]] = [(None, 0)] * len(batch.spans)  # whose pages, which version

    def write(self, step: Step, copies: Several[tuple[int, int]] = ()) -> StepSize:
        """Write a step, with the slots to be copied before it; returns how much of each array it uses. Once a
        turn."""
        batch, spans, at, row, want, positions = self._batch, self._spans, 0, 0, 0, 0
        for index, (sequence, first, count, wanted) in enumerate(step):
            if count == 1:
                self._tokens[row] = sequence.tokens[first]
            else:
                known = sequence.tokens[first : first + count]
                batch.tokens[row : row + count] = known + sequence.draft[: count - len(known)]
            spans[at], spans[at + 1], spans[at + 2] = row, count, first
            if self._written[index] != (sequence, sequence.table_version) and sequence.table is not None:
                spans[at + 3], spans[at + 4] = sequence.slot, sequence.lora is not None
                if sequence.lora is not None:
                    batch.scales[index] = sequence.lora
                batch.pages[:, index, : sequence.page_count] = sequence.table[:, : sequence.page_count]
                self._written[index] = (sequence, sequence.table_version)
            at += SPAN
            if len(wanted) == 1:
                self._want[want] = row + wanted.start - first
                want += 1
            elif wanted:
                batch.want[want : want + len(wanted)] = range(row + wanted.start - first, row + count)
                want += len(wanted)
            row += count
            if first + count > positions:
                positions = first + count
        for index, pair in enumerate(copies):
            batch.copies[index] = SLOTS, *pair
        return StepSize(row, len(step), want, len(copies), positions)
