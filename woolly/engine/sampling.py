"""From a row of logits to a token: the stages, in their order, as plain NumPy functions.

    penalties, bias | mask, top_k, top_p, min_p, temperature, draw

This file defines the result. What is left of the bar changes a few logits and always runs here, in place. What is
right of it has a twin in native/kernels/pick.inl that gives the same token, always. What makes the two equal:

- a weight is exp32(logit - largest), in float32 with our own polynomial; it is the probability but for a common factor;
- a total of weights is float64: a token adds to lane (id mod 16), ids ascending, and a fixed tree joins the lanes;
- ties at the edge of top_k and top_p go to the lower id;
- the drawn number is a pure function of seed and position, so neither batch nor restart nor neighbours change it.

STAGES is the table: a stage takes the candidates and the field of `Sampling` that has its name. One without a twin
works all the same: rows that use it are picked here (sampler.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly.model.numerics import exp32
from woolly.request import Sampling

REPEAT_WINDOW = 64  # tokens that the repetition penalty looks back at, prompt included
NO_TOKEN = -1  # instead of a token: a logit is NaN or infinite, or the mask allows nothing

Logits: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.uint32]  # bit i of word w allows token 32 w + i


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens still in the race, ids ascending, with their logits."""

    ids: NDArray[np.int64]  # [n]
    logits: Logits  # [n]

    def only(self, kept: NDArray[np.bool_]) -> Candidates:
        return Candidates(self.ids[kept], self.logits[kept])

    def weights(self) -> Logits:
        """Probabilities but for a common factor; the largest weight is 1."""
        return exp32(self.logits - self.logits.max())

    def total(self, weights: Logits) -> float:
        lanes = np.bincount(self.ids % 16, weights=weights, minlength=16)  # adds one after the other, in float64
        for half in (8, 4, 2, 1):
            lanes = lanes[:half] + lanes[half : 2 * half]
        return float(lanes[0])


def counts_tokens(s: Sampling) -> bool:
    """Whether the penalties need to know how often the answer has each token."""
    return s.presence_penalty != 0.0 or s.frequency_penalty != 0.0


def edits_logits(s: Sampling) -> bool:
    """Whether penalties or bias change anything."""
    return counts_tokens(s) or s.repetition_penalty != 1.0 or bool(s.logit_bias)


def penalties(logits: Logits, recent: Sequence[int], counts: Mapping[int, int], s: Sampling) -> None:
    """Make what was said already less likely, in place: the `recent` tokens, and those the answer holds `counts` of."""
    if s.repetition_penalty != 1.0:
        ids = np.array(sorted(set(recent)), np.int64)
        old, factor = logits[ids], np.float32(s.repetition_penalty)
        logits[ids] = np.where(old > 0, old / factor, old * factor)
    if counts:
        ids = np.fromiter(counts, np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        logits[ids] = (logits[ids] - times * np.float32(s.frequency_penalty)) - np.float32(s.presence_penalty)


def bias(logits: Logits, s: Sampling) -> None:
    """Add to the logits of a few tokens, in place."""
    for token, value in s.logit_bias.items():
        logits[token] += np.float32(value)


def top_k(c: Candidates, k: int) -> Candidates:
    """The k largest logits; 0 keeps all."""
    if k == 0 or k >= len(c.ids):
        return c
    kept = np.zeros(len(c.ids), np.bool_)
    kept[np.argsort(-c.logits, kind="stable")[:k]] = True
    return c.only(kept)


def top_p(c: Candidates, p: float) -> Candidates:
    """The likeliest tokens that together reach the share p, the one that crosses it included; 1 keeps all."""
    if p >= 1.0:
        return c
    weights = c.weights()
    order = np.argsort(-weights, kind="stable")
    running = np.cumsum(weights[order], dtype=np.float64)
    crossing = int(np.searchsorted(running, p * c.total(weights), side="left"))
    kept = np.zeros(len(c.ids), np.bool_)
    kept[order[: crossing + 1]] = True
    return c.only(kept)


def min_p(c: Candidates, p: float) -> Candidates:
    """The tokens at least p times as likely as the likeliest; 0 keeps all."""
    if p <= 0.0:
        return c
    weights = c.weights().astype(np.float64)
    return c.only(weights >= p * weights.max())


def temperature(c: Candidates, t: float) -> Candidates:
    """Flatten (above 1) or sharpen (below 1). The largest logit becomes 0, so that no division overflows upwards."""
    with np.errstate(over="ignore"):  # a hopeless token may go to minus infinity
        return Candidates(c.ids, (c.logits - c.logits.max()) / np.float32(t))


def draw(c: Candidates, u: float) -> int:
    """The first token, ids ascending, whose running weight exceeds u times the total."""
    weights = c.weights()
    running = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(running, u * c.total(weights), side="right"))
    return int(c.ids[min(index, len(c.ids) - 1)])


@dataclass(frozen=True, slots=True)
class Stage:
    """A row of the table. off: the value of its field at which it changes nothing; native: pick.inl has its twin."""

    function: Callable[[Candidates, Any], Candidates]
    off: int | float
    native: bool

    @property
    def name(self) -> str:
        """Of the field of `Sampling` that it reads."""
        return self.function.__name__


STAGES: tuple[Stage, ...] = (
    Stage(top_k, off=0, native=True),
    Stage(top_p, off=1.0, native=True),
    Stage(min_p, off=0.0, native=True),
    Stage(temperature, off=1.0, native=True),
)


def native_values(s: Sampling) -> tuple[Any, ...] | None:
    """What the native stages are told, in their order; None where this sampling uses a stage that has no twin."""
    if any(not stage.native and getattr(s, stage.name) != stage.off for stage in STAGES):
        return None
    return tuple(getattr(s, stage.name) for stage in STAGES if stage.native)


def pick(logits: Logits, s: Sampling, *, seed: int, position: int, mask: Mask | None = None) -> int:
    """The token of one row, or NO_TOKEN. A temperature of 0 takes the largest, ties to the lowest id."""
    ids = np.arange(len(logits)) if mask is None else allowed(mask, len(logits))
    if not np.isfinite(logits).all() or not len(ids):
        return NO_TOKEN
    c = Candidates(ids, logits[ids])
    if np.float32(s.temperature) == 0.0:
        return int(c.ids[c.logits.argmax()])
    for stage in STAGES:
        c = stage.function(c, getattr(s, stage.name))
    return draw(c, uniform(seed, position))


def allowed(mask: Mask, vocab: int) -> NDArray[np.int64]:
    """The ids that a mask allows, ascending."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=vocab)
    return np.flatnonzero(bits)


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that the token at this position of this seed is drawn with: 24 bits of Philox."""
    return (philox((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0] >> 8) * 2.0**-24


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011)."""
    a, b, c, d = counter
    k, l = key
    for _ in range(10):
        low, high = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (high >> 32) ^ b ^ k, high & 0xFFFFFFFF, (low >> 32) ^ d ^ l, low & 0xFFFFFFFF
        k, l = (k + 0x9E3779B9) & 0xFFFFFFFF, (l + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d
