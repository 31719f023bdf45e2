"""Codebooks: what a code stands for where it is no plain number.

A code names an entry, one, four or eight integers. Values of the IQ2 and IQ3 types have their signs apart, a bit each.
The entries of the large books are data (books.inc), because nothing but the fitting of many models made them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from woolly.formats.blocks import Array, Fields

Integers = NDArray[np.int8]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Book:
    """The integers of every code. even: of eight signs an even number is set; shared: so many codes lean one way."""

    entries: Callable[[], Integers]  # [codes, width]
    signed: bool = False
    even: bool = False
    shared: int = 1

    def values(self, fields: Fields) -> Integers:
        """The integers of blocks, [..., block]."""
        q = self.entries()[fields.codes].reshape(*fields.codes.shape[:-1], -1)
        return q if fields.signs is None else np.where(fields.signs, -q, q)


def listed(*values: int) -> Book:
    """A book of single values."""
    entries = np.array(values, np.int8)[:, None]
    return Book(lambda: entries)


@cache
def _sets() -> dict[str, str]:
    text = Path(__file__).with_name("books.inc").read_text("ascii")
    return {name: "".join(re.findall(r'"(\w+)"', body)) for name, body in re.findall(r"BOOK\((\w+),([^)]*)\)", text)}


@cache
def _entries(name: str, levels: tuple[int, ...]) -> Integers:
    width = 8 if len(levels) == 3 else 4
    digits = np.array([int(digit, 16) for digit in _sets()[name]], np.uint8)
    numbers = np.flatnonzero(digits[:, None] >> np.arange(4, dtype=np.uint8) & 1)
    found: Integers = np.array(levels, np.int8)[numbers[:, None] // len(levels) ** np.arange(width) % len(levels)]
    return found


@cache
def _leaning() -> Integers:
    """-1, 0 and 1 an eighth up, then the same an eighth down: in eighths."""
    eighths = 8 * _entries("IQ1", (-1, 0, 1))
    return np.concatenate([eighths + np.int8(1), eighths - np.int8(1)])


def grid(name: str, *levels: int, even: bool = False) -> Book:
    """A book of books.inc, with signs apart."""
    return Book(lambda: _entries(name, levels), signed=True, even=even)


def leaning(shared: int) -> Book:
    """The book of the IQ1 types: bit 11 of a code says where it leans."""
    return Book(_leaning, shared=shared)


def nearest(book: Book, x: F32) -> tuple[Array, NDArray[np.uint8] | None]:
    """Codes, and signs, of the entries near x [..., block], which is in units of the book."""
    entries = book.entries().astype(np.float32)
    width = entries.shape[1]
    signs = None
    if book.signed:
        signs = (x < 0).astype(np.uint8)
        if book.even:
            eights = x.reshape(-1, 8)
            odd = np.flatnonzero(signs.reshape(-1, 8).sum(-1) % 2)
            signs.reshape(-1, 8)[odd, np.abs(eights[odd]).argmin(-1)] ^= 1
        x = np.where(signs, -x, x)
    runs = x.reshape(-1, width)
    if book.shared > 1:
        half = len(entries) // 2
        both = [_search(entries[i : i + half], runs) for i in (0, half)]
        loss = np.stack([np.sum((entries[codes + i] - runs) ** 2, -1).reshape(-1, book.shared).sum(-1)
                         for codes, i in zip(both, (0, half), strict=True)])  # fmt: skip
        lower = np.repeat(loss[1] < loss[0], book.shared)
        codes = np.where(lower, both[1] + half, both[0])
    else:
        codes = _search(entries, runs)
    kind = np.uint8 if len(entries) <= 256 else np.uint16
    return codes.astype(kind).reshape(*x.shape[:-1], -1), signs


def _search(entries: F32, runs: F32) -> NDArray[np.int64]:
    """The entry with the least distance from each run, some thousand at a time."""
    size = np.sum(entries * entries, -1)
    found = [(size - 2 * runs[i : i + 4096] @ entries.T).argmin(-1) for i in range(0, len(runs), 4096)]
    return np.concatenate(found)
