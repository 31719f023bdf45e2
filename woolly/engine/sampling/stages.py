"""From a row of logits to a token: the stages, in their order, as plain NumPy functions.

    penalties, dry, bias | mask, top_n_sigma, top_k, typical_p, top_p, min_p, xtc, temperature, draw

This file defines the result (dry.py that of dry). What is left of the bar changes a few logits and always runs
here, in place. Right of it, top_k, top_p, min_p, temperature and draw have a twin in kernels/pick.inl that gives
the same token, always. What makes the two equal:

- a weight is exp32(logit - largest), in float32 with our own polynomial; it is the probability but for a common factor;
- a total of weights is float64: a token adds to lane (id mod 16), ids ascending, and a fixed tree joins the lanes;
- ties at the edge of top_k and top_p go to the lower id;
- a drawn number is a pure function of seed and position, so neither batch nor restart nor neighbours change it.

STAGES is the table: a stage takes the candidates and the field of `Sampling` that has its name. One without a twin
works all the same: rows that use it are picked here (sampler.py).

Mirostat takes the place of all stages but the temperature's. What it has learned of a text belongs to its positions
(`Surprise`), so a token that is picked again is the same again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly.model.ops.numerics import exp32
from woolly.request import Sampling

NO_TOKEN = -1  # instead of a token: a logit is NaN or infinite, or the mask allows nothing

Logits: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.uint32]  # bit i of word w allows token 32 w + i
Masks: TypeAlias = NDArray[np.uint32]  # [rows, words]
Surprise: TypeAlias = dict[int, float]  # position -> the surprise in bits that mirostat allows its token
Filling: TypeAlias = Callable[["Candidates", Logits, NDArray[np.int64]], "Candidates"]  # infill.py, of one sequence


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens still in the race, ids ascending, with their logits."""

    ids: NDArray[np.int64]  # [n]
    logits: Logits  # [n]

    def only(self, chosen: NDArray[np.bool_]) -> Candidates:
        return Candidates(self.ids[chosen], self.logits[chosen])

    def weights(self) -> Logits:
        """Probabilities but for a common factor; the largest weight is 1."""
        return exp32(self.logits - self.logits.max())

    def total(self, weights: Logits | NDArray[np.float64]) -> float:
        lanes = np.bincount(self.ids % 16, weights=weights, minlength=16)  # adds one after the other, in float64
        for half in (8, 4, 2, 1):
            lanes = lanes[:half] + lanes[half : 2 * half]
        return float(lanes[0])


def counts_tokens(s: Sampling) -> bool:
    """Whether the penalties need to know how often the answer has each token."""
    return s.presence_penalty != 0.0 or s.frequency_penalty != 0.0


def edits_logits(s: Sampling) -> bool:
    """Whether penalties, dry or bias change anything."""
    return counts_tokens(s) or s.repetition_penalty != 1.0 or s.dry_multiplier != 0.0 or bool(s.logit_bias)


def last(tokens: Sequence[int], count: int) -> Sequence[int]:
    """The last so many of the tokens; -1: all."""
    return tokens if count < 0 else tokens[max(len(tokens) - count, 0) :]


def penalties(logits: Logits, recent: Sequence[int], counts: Mapping[int, int], s: Sampling) -> None:
    """Make repeated tokens less likely, in place: the `recent` tokens, and those the answer holds `counts` of."""
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
        assert isinstance(token, int), "a text has become its tokens by now"
        logits[token] += np.float32(value)


def top_n_sigma(c: Candidates, n: float) -> Candidates:
    """The logits at most n standard deviations below the largest; 0 and less keeps all."""
    if n <= 0.0:
        return c
    below = c.logits.astype(np.float64) - c.logits.max()
    mean = c.total(below) / len(below)
    deviation = math.sqrt(c.total((below - mean) ** 2) / len(below))
    return c.only(below >= -n * deviation)


def top_k(c: Candidates, k: int) -> Candidates:
    """The k largest logits; 0 keeps all."""
    if k == 0 or k >= len(c.ids):
        return c
    chosen = np.zeros(len(c.ids), np.bool_)
    chosen[np.argsort(-c.logits, kind="stable")[:k]] = True
    return c.only(chosen)


def typical_p(c: Candidates, p: float) -> Candidates:
    """The tokens whose surprise is nearest to the mean surprise, until they reach the share p together; 1 keeps all.

    The distance between the two is that of the token's logit from the mean logit: the logarithm of the total is in both
    (Meister, Pimentel, Wiher, Cotterell: Locally typical sampling; 2023).
    """
    if p >= 1.0:
        return c
    weights = c.weights()
    below = c.logits.astype(np.float64) - c.logits.max()
    mean = c.total(weights * below) / c.total(weights)
    return _first(c, weights, np.argsort(np.abs(below - mean), kind="stable"), p)


def top_p(c: Candidates, p: float) -> Candidates:
    """The likeliest tokens that together reach the share p, the one that crosses it included; 1 keeps all."""
    if p >= 1.0:
        return c
    weights = c.weights()
    return _first(c, weights, np.argsort(-weights, kind="stable"), p)


def _first(c: Candidates, weights: Logits, order: NDArray[np.intp], p: float) -> Candidates:
    """The first tokens in this order that together reach the share p, the one that crosses it included."""
    running = np.cumsum(weights[order], dtype=np.float64)
    crossing = int(np.searchsorted(running, p * c.total(weights), side="left"))
    chosen = np.zeros(len(c.ids), np.bool_)
    chosen[order[: crossing + 1]] = True
    return c.only(chosen)


def min_p(c: Candidates, p: float) -> Candidates:
    """The tokens at least p times as likely as the likeliest; 0 keeps all."""
    if p <= 0.0:
        return c
    weights = c.weights().astype(np.float64)
    return c.only(weights >= p * weights.max())


def xtc_probability(c: Candidates, probability: float, threshold: float, u: float) -> Candidates:
    """With this probability, leave out the tokens at least as likely as the threshold, but for the least likely of
    them: exclude top choices. A threshold above one half never finds two."""
    if u >= probability:
        return c
    weights = c.weights()
    likely = np.flatnonzero(weights >= threshold * c.total(weights))
    if len(likely) < 2:
        return c
    chosen = np.ones(len(c.ids), np.bool_)
    chosen[likely] = False
    chosen[likely[np.argsort(-weights[likely], kind="stable")[-1]]] = True
    return c.only(chosen)


def dynatemp_range(c: Candidates, spread: float, exponent: float, t: float) -> Candidates:
    """Prepare for a temperature of up to `spread` more or less than t: less where the model is sure, more where not.

    How unsure it is, from 0 to 1, is the entropy as a share of the largest one for so many tokens; to the power of the
    exponent it says where between the two ends the temperature is. The next stage divides by t.
    """
    if spread <= 0.0 or len(c.ids) < 2:
        return c
    weights = c.weights()
    below = c.logits.astype(np.float64) - c.logits.max()
    total = c.total(weights)
    entropy = math.log(total) - c.total(weights * below) / total
    unsure = min(max(entropy / math.log(len(c.ids)), 0.0), 1.0)
    low, high = max(t - spread, 0.0), t + spread
    wanted = low + (high - low) * unsure**exponent
    factor = np.float32(t / max(wanted, 1e-6))  # one rounding, so that a library's last bit of log does not count
    with np.errstate(over="ignore"):
        return Candidates(c.ids, (below * factor).astype(np.float32))


def temperature(c: Candidates, t: float) -> Candidates:
    """Flatten (above 1) or sharpen (below 1). The largest logit becomes 0, so that no division overflows upwards."""
    with np.errstate(over="ignore"):  # a hopeless token may go to minus infinity
        return Candidates(c.ids, (c.logits - c.logits.max()) / np.float32(t))


def at_least(count: int, before: Candidates, after: Candidates) -> Candidates:
    """The candidates after a stage; the likeliest of those that it left out stay, until there are so many."""
    missing = min(count, len(before.ids)) - len(after.ids)
    if missing <= 0:
        return after
    left_out = before.only(~np.isin(before.ids, after.ids))
    return before.only(np.isin(before.ids, (*after.ids, *top_k(left_out, missing).ids)))


def mirostat(c: Candidates, s: Sampling, u: float, position: int, surprise: Surprise) -> int:
    """Draw among the tokens that are no more surprising than allowed, and learn for the next position.

    The surprise of a token is -log2 of its probability. The difference between that of the drawn token, among those it
    was drawn from, and mirostat_tau corrects what is allowed (Basu, Ramachandran, Keskar, Varshney: Mirostat; 2021; the
    second version). A text begins with twice mirostat_tau.
    """
    allowed = surprise.setdefault(position, 2.0 * s.mirostat_tau)
    weights = c.weights()
    least = 2.0**-allowed * c.total(weights)
    c = at_least(1, c, c.only(weights >= least))
    token = draw(c, u)
    weights = c.weights()
    seen = math.log2(c.total(weights) / weights[np.searchsorted(c.ids, token)])
    surprise[position + 1] = float(np.float32(allowed - s.mirostat_eta * (seen - s.mirostat_tau)))
    return token


def draw(c: Candidates, u: float) -> int:
    """The first token, ids ascending, whose running weight exceeds u times the total."""
    weights = c.weights()
    running = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(running, u * c.total(weights), side="right"))
    return int(c.ids[min(index, len(c.ids) - 1)])


@dataclass(frozen=True, slots=True)
class Stage:
    """A row of the table. off: the value of its field at which it changes nothing; native: pick.inl has its twin.

    more: further fields that the function takes. drawn: which of a position's random numbers it takes; None: none.
    """

    function: Callable[..., Candidates]
    off: int | float
    native: bool
    more: tuple[str, ...] = ()
    drawn: int | None = None

    @property
    def name(self) -> str:
        """Of the field of `Sampling` that it reads."""
        return self.function.__name__

    def run(self, c: Candidates, s: Sampling, seed: int, position: int) -> Candidates:
        """The candidates that the stage leaves, and no fewer than `min_keep`."""
        values: list[Any] = [getattr(s, name) for name in (self.name, *self.more)]
        if self.drawn is not None:
            values.append(uniform(seed, position, self.drawn))
        return at_least(s.min_keep, c, self.function(c, *values))


STAGES: tuple[Stage, ...] = (
    Stage(top_n_sigma, off=0.0, native=False),
    Stage(top_k, off=0, native=True),
    Stage(typical_p, off=1.0, native=False),
    Stage(top_p, off=1.0, native=True),
    Stage(min_p, off=0.0, native=True),
    Stage(xtc_probability, off=0.0, native=False, more=("xtc_threshold",), drawn=1),
    Stage(dynatemp_range, off=0.0, native=False, more=("dynatemp_exponent", "temperature")),
    Stage(temperature, off=1.0, native=True),
)
TEMPERING = STAGES[-2:]  # these change logits and leave out no token


def native_values(s: Sampling) -> tuple[Any, ...] | None:
    """The parameters of the native stages, in their order; None where this sampling uses a stage without a twin."""
    if s.mirostat or s.infill or s.min_keep > 1:  # each stage leaves a token, so min_keep matters from 2 on
        return None
    if any(not stage.native and getattr(s, stage.name) != stage.off for stage in STAGES):
        return None
    return tuple(getattr(s, stage.name) for stage in STAGES if stage.native)


def pick(
    logits: Logits,
    s: Sampling,
    *,
    seed: int,
    position: int,
    mask: Mask | None = None,
    surprise: Surprise | None = None,
    filling: Filling | None = None,
) -> int:
    """The token of one row, or NO_TOKEN. surprise: what mirostat has learned of this text, which it goes on with."""
    c = candidates(logits, s, seed=seed, position=position, mask=mask, filling=filling)
    if not len(c.ids):
        return NO_TOKEN
    if s.mirostat and np.float32(s.temperature) != 0.0:
        return mirostat(c, s, uniform(seed, position), position, {} if surprise is None else surprise)
    return draw(c, uniform(seed, position))


def candidates(
    logits: Logits,
    s: Sampling,
    *,
    seed: int,
    position: int,
    mask: Mask | None = None,
    filling: Filling | None = None,
) -> Candidates:
    """What one row's token is drawn from: nothing where a logit is NaN or infinite, or the mask allows nothing. A
    temperature of 0 leaves the largest, of ties the lowest id. filling: the stage of a text with a gap, before the
    temperature."""
    ids = np.arange(len(logits)) if mask is None else allowed(mask, len(logits))
    c = Candidates(ids, logits[ids])
    if not len(ids) or not np.isfinite(logits).all():
        return c.only(np.zeros(len(ids), np.bool_))
    greedy = np.float32(s.temperature) == 0.0
    for stage in () if s.mirostat or (greedy and filling is None) else STAGES[: -len(TEMPERING)]:
        c = stage.run(c, s, seed, position)
    if filling is not None:
        c = filling(c, logits, ids)
    if greedy:
        return c.only(np.arange(len(c.ids)) == c.logits.argmax())
    for stage in TEMPERING:
        c = stage.run(c, s, seed, position)
    return c


def allowed(mask: Mask, vocab: int) -> NDArray[np.int64]:
    """The ids that a mask allows, ascending."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=vocab)
    return np.flatnonzero(bits)


def uniform(seed: int, position: int, which: int = 0) -> float:
    """A number in [0, 1) of this position of this seed: 24 bits of Philox. The token is drawn with the first."""
    return (philox((position, which, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0] >> 8) * 2.0**-24


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011)."""
    a, b, c, d = counter
    k, l = key
    for _ in range(10):
        low, high = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (high >> 32) ^ b ^ k, high & 0xFFFFFFFF, (low >> 32) ^ d ^ l, low & 0xFFFFFFFF
        k, l = (k + 0x9E3779B9) & 0xFFFFFFFF, (l + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d
