"""States of sequences, as the reference keeps them: float32 values, keys and values rounded to the cache's type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from woolly.model.ops.numerics import F32, round_f16, round_q8

ROUND: dict[str, Callable[[F32], F32]] = {"f32": np.asarray, "f16": round_f16, "q8": round_q8}


class Lines:
    """One layer's keys and values of one sequence: [positions, heads, dim], growing as positions are written."""

    def __init__(self, heads: int, dim: int, value_dim: int) -> None:
        self.length = 0
        self.keys: F32 = np.empty((0, heads, dim), np.float32)
        self.values: F32 = np.empty((0, heads, value_dim), np.float32)

    def write(self, first: int, keys: F32, values: F32) -> None:
        """Write rows [count, heads, dim] at positions first, first + 1, ...; no position may be left out."""
        last = first + len(keys)
        if not 0 <= first <= self.length:
            raise ValueError(f"position {first} is written, but only {self.length} are there")
        if last > len(self.keys):
            more = max(last, 2 * len(self.keys)) - len(self.keys)
            self.keys, self.values = (
                np.concatenate([lines, np.empty((more, *lines.shape[1:]), np.float32)])
                for lines in (self.keys, self.values)
            )
        self.keys[first:last], self.values[first:last] = keys, values
        self.length = max(self.length, last)


@dataclass(frozen=True, slots=True)
class Cache:
    """A state of rows in a step: its type, and the lines of each span's sequence, in the order of the spans."""

    heads: int
    dim: int
    value_dim: int
    dtype: str
    lines: tuple[Lines, ...]


@dataclass(frozen=True, slots=True)
class Carry:
    """A carried state in a step: the blob of each span's sequence, in the order of the spans."""

    blobs: tuple[F32, ...]
