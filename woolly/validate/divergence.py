"""The engine's own error: its logits beside those of plain float32 arithmetic over the decoded weights of one file.

The Kullback-Leibler divergence of a position is the sum of p * (log p - log q), p from the truth, q from the engine; 0
means the same distribution. The error of quantising the file is in both p and q, so the figures do not contain it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from woolly.gguf import GgufFile
from woolly.model import EXACT, Matrix, Reference, build
from woolly.validate.likelihood import ROWS, logsoftmax

GROUP = 1024  # tokens computed together, which share the decoding of the weights
REST = 1.2  # a factor for norms, rotations and all else beside the products


@dataclass(frozen=True, slots=True)
class Divergence:
    """Over `tokens` positions: mean and worst divergence, and the share whose likeliest token is the same."""

    mean: float
    worst: float
    same_top: float
    tokens: int


class ExactModel:
    """A file's model in plain float32 arithmetic: slow, but small, since weights are decoded as they are used."""

    def __init__(self, file: GgufFile, context: int | None = None) -> None:
        self._reference = Reference(build(file, context), file, ops=EXACT)

    def group(self, context: int) -> int:
        """How many chunks of this size are computed together."""
        return max(1, GROUP // context)

    def seconds(self, tokens: int, context: int) -> float:
        """An estimate for so many tokens in chunks: one product of the model is timed, with as many rows as later."""
        graph = self._reference.graph
        products = [node for node in graph.nodes if node.op == "linear"]
        macs = sum(node.width * graph.weights[node.inputs[1]].shape[1] for node in products)
        node = sorted(products, key=lambda n: n.width * graph.weights[n.inputs[1]].shape[1])[len(products) // 2]
        weight = self._reference.weight(node.inputs[1])
        assert isinstance(weight, Matrix)
        rows = np.ones((min(tokens, self.group(context) * context), weight.k), np.float32)
        self._product(rows, weight)  # the first touch of the file and of the threads
        begin = time.monotonic()
        self._product(rows, weight)
        each = (time.monotonic() - begin) / (len(rows) * weight.rows * weight.k)
        attention = sum(graph.meta.heads) * graph.meta.head_dim * context
        return tokens * (macs + attention) * each * REST

    def logits(self, chunks: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """For each chunk the logits of the rows that are scored, [context / 2 - 1, vocab]; all chunks in one step."""
        context = len(chunks[0])
        half = context // 2
        tokens = np.concatenate([np.asarray(chunk, np.int32) for chunk in chunks])
        spans = [[i * context, context, 0] for i in range(len(chunks))]
        want = np.concatenate([np.arange(i * context + half, (i + 1) * context - 1) for i in range(len(chunks))])
        logits = self._reference.run(tokens, spans, want)
        for i in range(len(chunks)):
            self._reference.forget(i)
        return list(np.split(logits, len(chunks)))

    @staticmethod
    def _product(rows: NDArray[np.float32], weight: Matrix) -> None:
        EXACT["linear"](rows, weight, None, None, scale=1.0)


@dataclass(slots=True)
class DivergenceSum:
    """Sums of the divergence of the engine from the exact model, chunk by chunk."""

    divergences: list[NDArray[np.float64]] = field(default_factory=list)
    same: int = 0

    def add(self, truth: NDArray[np.float32], engine: NDArray[np.float32]) -> None:
        """Add the logits [rows, vocab] of both models for the same rows."""
        for first in range(0, len(truth), ROWS):
            p, q = logsoftmax(truth[first : first + ROWS]), logsoftmax(engine[first : first + ROWS])
            # rounding can leave a sum a hair below 0, but a divergence is never negative
            self.divergences.append(np.maximum(0.0, (np.exp(p) * (p - q)).sum(-1)))
            self.same += int((p.argmax(-1) == q.argmax(-1)).sum())

    @property
    def divergence(self) -> Divergence:
        values = np.concatenate(self.divergences)
        return Divergence(float(values.mean()), float(values.max()), self.same / len(values), len(values))
