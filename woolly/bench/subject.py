"""A loaded model to be timed: prompts, tokens and steps of several sequences, straight at the runner.

Tokens are forced, and the same as those of llama_peer.py: the token at position p of sequence s is
(7919 (p + 1000 s) + 1) mod the vocabulary. No sampling, no text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from woolly import gguf, model, plan, system
from woolly.device import Batch, cpu
from woolly.device.batch import NO_SLOT

STEP = 512  # tokens of a step of a prompt, as the engine takes them
PAGE = cpu.TARGET.page
APART = 1000  # positions by which the forced tokens of sequences are shifted


class Subject:
    """A model with room for sequences of so many positions; skip: passes of the plan that are left out."""

    def __init__(
        self,
        path: Path,
        *,
        threads: int,
        positions: int,
        sequences: int = 1,
        kv: str = "f16",
        exact: bool = False,
        skip: Collection[str] = (),
    ) -> None:
        begin = perf_counter()
        with gguf.open(path) as file:
            graph = model.build(file, positions)
            rows = max(min(STEP, positions), sequences)
            bounds = plan.Bounds(rows, sequences, sequences, positions)
            self.program = plan.plan(graph, cpu.TARGET, bounds, kv=kv, exact=exact, skip=skip)
            self._each = -(-positions // PAGE)
            plan.fit(self.program, system.memory(), asked=True)
            self.runner = cpu.Runner(
                self.program, file, threads=threads, pages=[self._each * sequences] * len(self.program.groups)
            )
            self.load_s, self.file_bytes = perf_counter() - begin, file.size
        self.threads, self.isa = threads, self.runner.isa
        self.architecture, self.vocab = graph.meta.architecture, graph.meta.vocab

    def prompt(self, count: int, depth: int = 0, sequence: int = 0) -> float:
        """Seconds to compute `count` tokens after `depth` of them, with the logits of the last."""
        batches = list(self._chunks(count, depth, sequence))
        return self._run(batches)

    def tokens(self, count: int, depth: int = 0, sequences: int = 1) -> float:
        """Seconds of `count` steps of one token for each of the sequences, with logits each."""
        return self._run([self.step(depth + i, sequences) for i in range(count)])

    def fill(self, depth: int, sequences: int = 1) -> None:
        """Compute the positions before `depth`, so that later ones can attend to them."""
        for sequence in range(sequences):
            if depth:
                self.prompt(depth, 0, sequence)

    def step(self, position: int, sequences: int = 1) -> Batch:
        """A step of one token for each of the sequences, at this position."""
        order = np.arange(sequences, dtype=np.int32)
        ones, places = np.ones(sequences, np.int32), np.full(sequences, position, np.int32)
        spans = np.stack([order, ones, places, self._slots(order), np.zeros_like(order)], axis=1)
        tokens = forced(position + APART * order, self.vocab)
        return Batch(tokens, spans, self._pages(order), order)

    def prompt_step(self, count: int, depth: int = 0) -> Batch:
        """The first step of a prompt."""
        return next(self._chunks(count, depth, 0))

    def close(self) -> None:
        self.runner.close()

    def _chunks(self, count: int, depth: int, sequence: int) -> Iterator[Batch]:
        end = depth + count
        for first in range(depth, end, self.program.bounds.rows):
            rows = min(self.program.bounds.rows, end - first)
            want = np.array([rows - 1] if first + rows == end else [], np.int32)
            tokens = forced(np.arange(first, first + rows) + APART * sequence, self.vocab)
            own = np.array([sequence], np.int32)
            spans = np.array([[0, rows, first, *self._slots(own), 0]], np.int32)
            yield Batch(tokens, spans, self._pages(own), want)

    def _slots(self, sequences: NDArray[np.int32]) -> NDArray[np.int32]:
        """The slots of the carried states; NO_SLOT for models that carry none."""
        return sequences if self.runner.slots else np.full_like(sequences, NO_SLOT)

    def _pages(self, sequences: NDArray[np.int32]) -> NDArray[np.int32]:
        pages: NDArray[np.int32] = (sequences[:, None] * self._each + np.arange(self._each)).astype(np.int32)
        return pages

    def _run(self, batches: Iterable[Batch]) -> float:
        begin = perf_counter()
        for batch in batches:
            self.runner.run(self.runner.batch.put(batch))
        return perf_counter() - begin


def forced(positions: NDArray[np.int32] | NDArray[np.int64], vocab: int) -> NDArray[np.int32]:
    tokens: NDArray[np.int32] = ((positions.astype(np.int64) * 7919 + 1) % vocab).astype(np.int32)
    return tokens
