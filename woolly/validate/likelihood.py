"""Perplexity, counted as llama.cpp's `perplexity` counts it, so that figures can be compared.

The tokens are cut into chunks of the context; what is left over at the end is not used. Each chunk is read alone, its
first token replaced by the one that texts begin with where the model has one. Only the second half of a chunk is
scored: token i + 1 from the logits after token i, for i from context / 2 to context - 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from woolly.errors import RequestError

ROWS = 64  # rows of logits that are converted to float64 at once


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Over `tokens` scored tokens: exp of the mean of -log p, and its standard error, from that of the mean."""

    perplexity: float
    error: float
    tokens: int


@dataclass(slots=True)
class LikelihoodSum:
    """Sums of -log p over all chunks so far."""

    tokens: int = 0
    total: float = 0.0
    squares: float = 0.0
    by_chunk: list[float] = field(default_factory=list)  # the perplexity of all chunks up to each one

    def add(self, losses: NDArray[np.float64]) -> None:
        """The -log p of one chunk's scored tokens."""
        self.tokens += len(losses)
        self.total += float(losses.sum())
        self.squares += float((losses**2).sum())
        self.by_chunk.append(self.likelihood.perplexity)

    @property
    def likelihood(self) -> Likelihood:
        mean = self.total / self.tokens
        perplexity = math.exp(min(mean, 700.0))
        spread = self.squares / self.tokens - mean * mean
        error = math.sqrt(spread / (self.tokens - 1)) * perplexity if spread > 0 and self.tokens > 1 else 0.0
        return Likelihood(perplexity, error, self.tokens)


def chunks(tokens: Sequence[int], context: int, begin: Sequence[int], most: int = 0) -> list[list[int]]:
    """The chunks of a text; `begin` is what the model puts before a text (one token, or none); most: 0 is all."""
    if context < 4 or context % 2:
        raise RequestError(f"the context is {context}; expected an even number of at least 4", param="--context")
    count = len(tokens) // context
    if not count:
        raise RequestError(
            f"the text has {len(tokens):,} tokens, a chunk {context:,}",
            suggestion="give a longer text, or a smaller --context",
            param="--context",
        )
    count = min(count, most) if most else count
    cut = [list(tokens[i * context : (i + 1) * context]) for i in range(count)]
    for chunk in cut:
        chunk[: len(begin)] = begin
    return cut


def losses(logits: NDArray[np.float32], targets: Sequence[int]) -> NDArray[np.float64]:
    """-log p of each target, from the logits [targets, vocab] before it."""
    out = np.empty(len(targets))
    for first in range(0, len(targets), ROWS):
        part = targets[first : first + ROWS]
        out[first : first + ROWS] = -logsoftmax(logits[first : first + ROWS])[np.arange(len(part)), part]
    return out


def logsoftmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The logarithms of the probabilities, row by row."""
    y = logits.astype(np.float64)
    y -= y.max(-1, keepdims=True)
    y -= np.log(np.exp(y).sum(-1, keepdims=True))
    return y
