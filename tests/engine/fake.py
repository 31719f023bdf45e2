"""A runner without a model: its pages hold tokens, and its logits are a hash of the tokens it sees through them.

A wrong page, position or token changes every logit that follows, so equal tokens mean that scheduling was right.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from woolly.native import Batch


def logits_of(tokens: NDArray[np.int32], vocab: int) -> NDArray[np.float32]:
    """The logits after these tokens: spread over about ±4, all different."""
    mixed = (np.arange(1, vocab + 1, dtype=np.uint32) * np.uint32(2654435761)) ^ np.uint32(crc32(tokens.tobytes()))
    mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(2246822519)
    return (mixed >> np.uint32(8)).astype(np.float32) * np.float32(8 / 2**24) - np.float32(4)


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
    ) -> None:
        self.rows, self.wants, self.sequences, self.context = rows, wants, sequences, context
        self.vocab, self.page, self.pages = vocab, page, pages
        self.cache = np.full((pages, page), -1, np.int32)
        self.logits = np.zeros((wants, vocab), np.float32)
        self.computed = 0  # rows of all steps
        self.closed = False

    def run(self, batch: Batch) -> NDArray[np.float32] | None:
        seen = {}
        for (row, count, first), table in zip(batch.spans.tolist(), batch.pages, strict=True):
            for at in range(count):
                position = first + at
                self.cache[table[position // self.page], position % self.page] = batch.tokens[row + at]
                seen[row + at] = (table, position + 1)
        self.computed += len(batch.tokens)
        for out, row in enumerate(batch.want.tolist()):
            table, length = seen[row]
            tokens = self.cache[table[: -(-length // self.page)]].reshape(-1)[:length]
            self.logits[out] = logits_of(tokens, self.vocab)
        return self.logits[: len(batch.want)]

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
