"""Tables by position that a graph reads: rotary angles and attention temperatures.

A table is frozen data. `rows(first, last)` computes the rows of positions first .. last - 1 in float64 with `math`
(NumPy's power and cosine differ between processors) and rounds once to float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Scaling = Literal["none", "linear", "yarn"]


class Table(Protocol):
    """Float32 rows by position."""

    @property
    def kind(self) -> str: ...

    @property
    def width(self) -> int: ...

    def rows(self, first: int, last: int) -> F32: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Cosines then sines of the rotary angles, `rot / 2` each.

    Pair i at position p is rotated by p * base^(-2i/rot), divided by `factors[i]` where the file has factors, and
    slowed down by `factor`: every pair alike (linear), or the slow pairs only (yarn).
    """

    kind: ClassVar[str] = "table"

    base: float
    rot: int
    scaling: Scaling = "none"
    factor: float = 1.0
    original: int = 0  # context before scaling
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attn_factor: float = 1.0
    log_multiplier: float = 0.0
    factors: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        return self.rot

    def rows(self, first: int, last: int) -> F32:
        """[last - first, rot]; once per position, about 1 ms for 256 positions of 32 pairs."""
        if not 0 <= first <= last:
            raise ValueError(f"positions {first} to {last} are no range")
        angles = np.multiply.outer(np.arange(first, last, dtype=np.float64), self.frequencies())
        flat = angles.ravel().tolist()
        cos = np.fromiter(map(math.cos, flat), np.float64, len(flat)).reshape(angles.shape)
        sin = np.fromiter(map(math.sin, flat), np.float64, len(flat)).reshape(angles.shape)
        return (np.concatenate([cos, sin], axis=1) * self.magnitude()).astype(np.float32)

    def frequencies(self) -> list[float]:
        """Angle per position of each pair."""
        pairs = range(self.rot // 2)
        theta = [self.base ** (-2.0 * i / self.rot) for i in pairs]
        if self.factors:
            theta = [t / f for t, f in zip(theta, self.factors, strict=True)]
        if self.scaling == "linear":
            return [t / self.factor for t in theta]
        if self.scaling == "yarn":
            keep = self._kept_share()
            return [t / self.factor * (1.0 - m) + t * m for t, m in zip(theta, keep, strict=True)]
        return theta

    def magnitude(self) -> float:
        """What yarn multiplies cosines and sines by, to keep the entropy of attention over a longer context."""
        if self.scaling != "yarn":
            return self.attn_factor
        log = math.log(self.factor) if self.factor > 1.0 else 0.0
        return self.attn_factor * (1.0 + 0.1 * log) / (1.0 + 0.1 * self.log_multiplier * log)

    def _kept_share(self) -> list[float]:
        """1 for pairs that turn more than beta_fast times in the original context, 0 below beta_slow, else a ramp."""

        def pair(rotations: float) -> float:
            return self.rot * math.log(self.original / (rotations * 2.0 * math.pi)) / (2.0 * math.log(self.base))

        low = max(0.0, math.floor(pair(self.beta_fast)))
        high = min(self.rot - 1.0, math.ceil(pair(self.beta_slow)))
        step = max(0.001, high - low)
        return [1.0 - min(1.0, max(0.0, (i - low) / step)) for i in range(self.rot // 2)]


@dataclass(frozen=True, slots=True)
class TemperatureTable:
    """1 + scale * ln(floor((position + first) / length) + 1): queries grow slowly beyond the original context."""

    kind: ClassVar[str] = "table"

    scale: float
    length: int
    first: int = 0

    @property
    def width(self) -> int:
        return 1

    def rows(self, first: int, last: int) -> F32:
        """[last - first, 1]."""
        if not 0 <= first <= last:
            raise ValueError(f"positions {first} to {last} are no range")
        values = [1.0 + self.scale * math.log((p + self.first) // self.length + 1.0) for p in range(first, last)]
        return np.array(values, np.float64).astype(np.float32).reshape(-1, 1)
