"""Codebooks: the integers that codes stand for, in tensor types whose codes are not plain numbers.

A code is the index of an entry of one, four or eight integers. IQ2 and IQ3 types store the signs of values separately.
The entries of the large books are data (codebooks.inc), because they were fitted to many models and have no formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from woolly.gguf.tensor_types.blocks import Array, Fields

Integers = NDArray[np.int8]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Codebook:
    """The integers of every code. even: of eight signs an even number is set; shared: codes per sign of delta."""

    entries: Callable[[], Integers]  # [codes, width]
    signed: bool = False
    even: bool = False
    shared: int = 1

    def values(self, fields: Fields) -> Integers:
        """The integers of blocks, [..., block]."""
        q = self.entries()[fields.codes].reshape(*fields.codes.shape[:-1], -1)
        return q if fields.signs is None else np.where(fields.signs, -q, q)


def listed(*values: int) -> Codebook:
    """A codebook of single values."""
    entries = np.array(values, np.int8)[:, None]
    return Codebook(lambda: entries)


@cache
def _sets() -> dict[str, str]:
    text = Path(__file__).with_name("codebooks.inc").read_text("ascii")
    return {name: "".join(re.findall(r'"(\w+)"', body)) for name, body in re.findall(r"BOOK\((\w+),([^)]*)\)", text)}


@cache
def _entries(name: str, levels: tuple[int, ...]) -> Integers:
    width = 8 if len(levels) == 3 else 4
    digits = np.array([int(digit, 16) for digit in _sets()[name]], np.uint8)
    numbers = np.flatnonzero(digits[:, None] >> np.arange(4, dtype=np.uint8) & 1)
    entries: Integers = np.array(levels, np.int8)[numbers[:, None] // len(levels) ** np.arange(width) % len(levels)]
    return entries


@cache
def _leaning() -> Integers:
    """The entries of -1, 0 and 1 plus a delta of 1/8, then the same minus it; in eighths."""
    eighths = 8 * _entries("IQ1", (-1, 0, 1))
    return np.concatenate([eighths + np.int8(1), eighths - np.int8(1)])


def grid(name: str, *levels: int, even: bool = False) -> Codebook:
    """A codebook of codebooks.inc, whose signs are stored separately."""
    return Codebook(lambda: _entries(name, levels), signed=True, even=even)


def leaning(shared: int) -> Codebook:
    """The codebook of the IQ1 types: bit 11 of a code chooses the sign of the delta."""
    return Codebook(_leaning, shared=shared)


def nearest(codebook: Codebook, x: F32) -> tuple[Array, NDArray[np.uint8] | None]:
    """Codes, and signs, of the entries nearest to x [..., block], which is in units of the codebook."""
    entries = codebook.entries().astype(np.float32)
    width = entries.shape[1]
    signs = None
    if codebook.signed:
        signs = (x < 0).astype(np.uint8)
        if codebook.even:
            eights = x.reshape(-1, 8)
            odd = np.flatnonzero(signs.reshape(-1, 8).sum(-1) % 2)
            signs.reshape(-1, 8)[odd, np.abs(eights[odd]).argmin(-1)] ^= 1
        x = np.where(signs, -x, x)
    runs = x.reshape(-1, width)
    if codebook.shared > 1:
        half = len(entries) // 2
        both = [_search(entries[i : i + half], runs) for i in (0, half)]
        loss = np.stack([np.sum((entries[codes + i] - runs) ** 2, -1).reshape(-1, codebook.shared).sum(-1)
                         for codes, i in zip(both, (0, half), strict=True)])  # fmt: skip
        lower = np.repeat(loss[1] < loss[0], codebook.shared)
        codes = np.where(lower, both[1] + half, both[0])
    else:
        codes = _search(entries, runs)
    kind = np.uint8 if len(entries) <= 256 else np.uint16
    return codes.astype(kind).reshape(*x.shape[:-1], -1), signs


def _search(entries: F32, runs: F32) -> NDArray[np.int64]:
    """The entry nearest to each run, 512 runs at a time, so that their products stay in the CPU's cache."""
    half_size, across = np.sum(entries * entries, -1) / 2, np.ascontiguousarray(entries.T)
    nearest_entries = [(runs[i : i + 512] @ across - half_size).argmax(-1) for i in range(0, len(runs), 512)]
    return np.concatenate(nearest_entries)
