"""Weights as the ops see them: vectors are float32 arrays, matrices decode themselves when asked."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from woolly.gguf import GgufFile
from woolly.gguf.tensor_types import FORMATS, Format, ScaledIntegers
from woolly.model.operands import Rows, Weight
from woolly.model.ops.numerics import F32


class Matrix:
    """A weight of two dimensions in the bytes of its file format; decoded values are kept.

    raw is uint8 [rows, bytes of a row]; k is the number of columns.
    """

    def __init__(self, format: str, raw: NDArray[np.uint8], k: int) -> None:
        self.format: Format = FORMATS[format]
        self.raw = raw
        self.k = k

    @property
    def rows(self) -> int:
        return int(self.raw.shape[0])

    def take(self, rows: NDArray[np.int32]) -> F32:
        """The decoded values of some rows, [len(rows), k]."""
        return self.format.decode(self.raw[rows], self.k)

    @cached_property
    def values(self) -> F32:
        """All decoded values, [rows, k]."""
        return self.format.decode(self.raw, self.k)

    @cached_property
    def parts(self) -> ScaledIntegers:
        """Codes, scales and minima of a quantised format."""
        return self.format.parts(self.raw)


class Experts:
    """A weight of three dimensions: matrices of one shape, [experts * rows, bytes of a row] one after the other."""

    def __init__(self, format: str, raw: NDArray[np.uint8], rows: int, k: int) -> None:
        self.rows, self.k = rows, k
        self._matrices = [Matrix(format, raw[first : first + rows], k) for first in range(0, len(raw), rows)]

    @property
    def count(self) -> int:
        return len(self._matrices)

    def matrix(self, expert: int) -> Matrix:
        return self._matrices[expert]


def load_experts(weight: Weight, file: GgufFile) -> Experts:
    """The experts a Weight names: of each its rows in every part."""
    experts, rows, k = weight.shape
    if weight.transposed:
        values = transposed(file, weight.rows[0], experts)
        return Experts("F32", values.view(np.uint8).reshape(experts * rows, 4 * k), rows, k)
    parts = [
        _rows(file, part.tensor, weight.format, k).reshape(experts, -1, FORMATS[weight.format].row_bytes(k))[
            :, part.first : part.first + part.count
        ]
        for part in weight.rows
    ]
    raw = np.concatenate(parts, axis=1)
    return Experts(weight.format, raw.reshape(experts * rows, -1), rows, k)


def transposed(file: GgufFile, part: Rows, matrices: int) -> F32:
    """Some rows of each of several matrices as columns: decoded, [matrices, columns in the file, rows]."""
    info = file.tensors[part.tensor]
    values = FORMATS[info.format].decode(_rows(file, part.tensor, info.format, info.shape[-1]), info.shape[-1])
    some = values.reshape(matrices, -1, info.shape[-1])[:, part.first : part.first + part.count]
    return np.ascontiguousarray(some.transpose(0, 2, 1))


def load_matrix(weight: Weight, file: GgufFile) -> Matrix:
    """The matrix a Weight names; the rows of its parts one after the other."""
    rows, k = weight.shape
    parts = [_rows(file, part.tensor, weight.format, k)[part.first : part.first + part.count] for part in weight.rows]
    raw = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if raw.shape[0] != rows:
        raise ValueError(f"weight {weight.name} has {raw.shape[0]} rows, its graph says {rows}")
    return Matrix(weight.format, raw, k)


def load_vector(weight: Weight, file: GgufFile) -> F32:
    """The vector a Weight names, decoded; parts one after the other."""
    if weight.values:
        return np.array(weight.values, np.float32)
    parts = []
    for part in weight.rows:
        raw = np.frombuffer(file.data(part.tensor), np.uint8).reshape(1, -1)
        values = FORMATS[weight.format].decode(raw, math.prod(file.tensors[part.tensor].shape))[0]
        parts.append(values[part.first : part.first + part.count])
    return np.concatenate(parts)


def _rows(file: GgufFile, name: str, format: str, k: int) -> NDArray[np.uint8]:
    """All rows of a tensor, [rows, bytes of a row]."""
    return np.frombuffer(file.data(name), np.uint8).reshape(-1, FORMATS[format].row_bytes(k))
