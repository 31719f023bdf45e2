"""A runner without a model: its pages hold tokens, and its logits are a hash of the tokens it sees through them.

A wrong page, position or token changes every logit that follows, so equal tokens mean that scheduling was right.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from woolly.device import DEVICES, Batch, StepSize, cpu
from woolly.device.batch import SLOTS
from woolly.plan import Output

Outputs = dict[str, NDArray[np.float32]]


def used(batch: Batch, size: StepSize) -> Batch:
    """Those rows of the arrays that a step of this size uses."""
    spans = batch.spans[: size.spans]
    pages, scales = batch.pages[:, : size.spans], batch.scales[: size.spans]
    return Batch(batch.tokens[: size.rows], spans, pages, batch.want[: size.wants], scales=scales)


def mark(lora: NDArray[np.float32] | None) -> int:
    """A number for a set of adapters, mixed into each token, so that pages computed with other adapters differ."""
    return 0 if lora is None else crc32(lora.tobytes()) & 0x7FFF0000


def logits_of(tokens: NDArray[np.int32], vocab: int, carried: int = 0) -> NDArray[np.float32]:
    """The logits after these tokens: spread over about ±4, all different."""
    digest = np.uint32(crc32(tokens.tobytes(), carried))
    mixed = (np.arange(1, vocab + 1, dtype=np.uint32) * np.uint32(2654435761)) ^ digest
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(2246822519)
    return (mixed >> np.uint32(8)).astype(np.float32) * np.float32(8 / 2**24) - np.float32(4)


def logits_after(
    tokens: list[int],
    vocab: int,
    windows: tuple[int, ...] = (0,),
    *,
    slots: bool = False,
    lora: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """The logits of a runner that has computed all these tokens, whatever pages they lie in."""
    carried = 0
    for token in tokens if slots else ():
        carried = crc32(token.to_bytes(4, "little"), carried)
    known = np.array(tokens, np.int32) ^ np.int32(mark(lora))
    return logits_of(_joined([known[-window:] for window in windows]), vocab, carried)


def _joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The tokens that a row sees in all page groups; empty for a model without groups."""
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


class Fake:
    def __init__(
        self,
        *,
        rows: int = 16,
        wants: int = 4,
        sequences: int = 4,
        context: int = 256,
        vocab: int = 32,
        page: int = 4,
        pages: int = 64,
        windows: tuple[int, ...] = (0,),
        slots: bool = False,
        snapshots: int = 0,
        single_step: bool = False,
        adapters: int = 0,
    ) -> None:
        self.rows, self.wants, self.sequences, self.context = rows, wants, sequences, context
        self.vocab, self.page, self.pages, self.windows = vocab, page, (pages,) * len(windows), windows
        self.slots, self.snapshots, self.single_step = sequences if slots else 0, snapshots, single_step
        self.page_bytes = (4 * page,) * len(windows)
        self.pool_bytes = 4 * page * pages * len(windows)
        self.batch = Batch.empty(
            rows=rows,
            wants=wants,
            sequences=sequences,
            groups=len(windows),
            pages=-(-context // page),
            adapters=adapters,
        )
        self.cache = np.full((len(windows), pages, page), -1, np.int32)
        # for each slot a digest of all tokens so far, as the carried state
        self.carried = np.zeros(sequences + snapshots, np.uint32)
        self.output = Output("logits", 0, "wants", vocab)
        self.logits = np.zeros((wants, vocab), np.float32)
        self.isa, self.queue, self.widths = cpu.ISA, DEVICES["cpu"].queue, {"logits": vocab}
        self.computed = 0  # how many rows all steps had
        self.closed = False

    def run(self, size: StepSize) -> Outputs | None:
        """Each group keeps its own pages; the logits are a hash of what a row sees in all groups, and of its state."""
        batch = used(self.batch, size)
        for group, slot, to in self.batch.copies[: size.copies].tolist():
            assert group == SLOTS
            self.carried[to] = self.carried[slot]
        seen: dict[int, tuple[int, int, int]] = {}
        for index, (row, count, first, slot, adapter) in enumerate(batch.spans.tolist()):
            marked = mark(batch.scales[index] if adapter else None)
            for at in range(count):
                position, token = first + at, int(batch.tokens[row + at])
                for group in range(len(self.windows)):
                    page = batch.pages[group, index, position // self.page]
                    self.cache[group, page, position % self.page] = token ^ marked
                if slot >= 0:
                    before = int(self.carried[slot]) if position else 0
                    self.carried[slot] = crc32(token.to_bytes(4, "little"), before)
                seen[row + at] = (index, position + 1, int(self.carried[slot]) if slot >= 0 else 0)
        self.computed += len(batch.tokens)
        for out, row in enumerate(batch.want.tolist()):
            index, length, carried = seen[row]
            parts = [self.seen(batch, group, index, length) for group in range(len(self.windows))]
            self.logits[out] = logits_of(_joined(parts), self.vocab, carried)
        return {"logits": self.logits}

    def pick(self, rows: NDArray[np.uint8], count: int, masks: NDArray[np.uint32] | None) -> list[int]:
        return cpu.pick(self.logits, rows, count, masks)

    def seen(self, batch: Batch, group: int, index: int, length: int) -> NDArray[np.int32]:
        """The tokens that a row sees through the pages of a group, when it is the last of `length` tokens."""
        table, first = batch.pages[group, index], max(length - self.windows[group], 0) if self.windows[group] else 0
        begin = first // self.page
        tokens = self.cache[group, table[begin : -(-length // self.page)]].reshape(-1)
        return tokens[first - begin * self.page : length - begin * self.page]

    def read_page(self, group: int, page: int) -> bytes:
        return self.cache[group, page].tobytes()

    def write_page(self, group: int, page: int, data: bytes | memoryview) -> None:
        self.cache[group, page] = np.frombuffer(data, np.int32)

    def read_slot(self, slot: int) -> bytes:
        return self.carried[slot].tobytes()

    def write_slot(self, slot: int, data: bytes | memoryview) -> None:
        self.carried[slot] = np.frombuffer(data, np.uint32)[0]

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
