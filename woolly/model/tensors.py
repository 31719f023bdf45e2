"""Tensors: what a family takes of its file: weights, numbers, and tables that depend on them.

A weight is taken by name together with the shape the graph expects; the file must have it in that shape. What nobody
took is refused at the end: the file's model is another one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from woolly.errors import FileError, UnsupportedError, printable
from woolly.gguf import GgufFile
from woolly.gguf.tensor_types import FORMATS
from woolly.model.meta import missing_tensor
from woolly.model.operands import Rows, Weight
from woolly.model.ops.numerics import F32
from woolly.model.tables import RopeTable, Table

RowRanges = tuple[Rows, ...]


class Tensors:
    """Of one file, for sequences of at most `context` positions."""

    def __init__(self, file: GgufFile, context: int) -> None:
        self.weights: dict[str, Weight] = {}
        self.tables: dict[str, Table] = {}
        self.neox: dict[str, bool] = {}  # by rotary table: whether the two columns of a pair are rot / 2 apart
        self.taken: set[str] = set()
        self._file = file
        self._context = context
        self._where = printable(file.path.name)

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self._file.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that the file must have."""
        if name not in self._file.tensors:
            raise missing_tensor(self._file, name)
        return self._file.tensors[name].shape

    def rows(self, name: str) -> int:
        """The rows of a matrix, or of each expert's, that the file must have."""
        shape = self.shape(name)
        if len(shape) < 2:
            raise FileError(f"{self._where}: tensor {name} is {_by(shape)}, but a matrix is expected", tensor=name)
        return shape[-2]

    def rows_of_positions(self, name: str) -> int:
        """The rows of a matrix with a row for each position: the context cannot be longer."""
        rows = self.rows(name)
        if rows < self._context:
            raise FileError(
                f"{self._where}: tensor {name} has {rows} positions, but the context is {self._context:,}",
                suggestion=f"ask for a context of at most {rows:,}",
                tensor=name,
            )
        return rows

    def weight(self, name: str, *shape: int, parts: RowRanges = ()) -> str:
        """Take a tensor of the file, which must have this shape: (experts, rows, k), (rows, k), or (n,) for a vector of
        floats; where `parts` are given, these rows of it, or of each expert."""
        info = self._file.tensors.get(name)
        if info is None:
            raise missing_tensor(self._file, name)
        same = info.shape in (shape, (1, *shape)) or (1, *info.shape) == shape
        if not same and parts and len(shape) > 1:  # the rows of several matrices, one after the other
            same = info.shape[-1] == shape[-1] and math.prod(info.shape) == math.prod(shape)
        if not same:
            actual, expected = _by(info.shape), _by(shape)
            raise FileError(f"{self._where}: tensor {name} is {actual}, but {expected} is expected", tensor=name)
        if len(shape) == 1:
            self._need_floats(name, info.format)
        self.taken.add(name)
        if not parts:
            self.weights[name] = Weight(name, shape, info.format)
            return name
        some = f"{name}{rows_of(parts)}"
        axis, count = max(len(shape) - 2, 0), sum(part.count for part in parts)
        self.weights[some] = Weight(some, (*shape[:axis], count, *shape[axis + 1 :]), info.format, parts)
        return some

    def vector(self, name: str, n: int) -> str:
        """A vector that was taken or made before, else one of the file."""
        return name if name in self.weights else self.weight(name, n)

    def flat(self, name: str, *shape: int, row: int | None = None) -> str:
        """Take a tensor of floats of several dimensions as one vector, or a row of it; dimensions of 1 do not count."""
        info = self._file.tensors.get(name)
        if info is None or _wide(info.shape) != _wide(shape):
            return self.weight(name, *shape)  # raises the error that names the fault
        self._need_floats(name, info.format)
        self.taken.add(name)
        n = math.prod(shape) if row is None else shape[-1]
        vector = name if row is None else f"{name}[{row}]"
        self.weights[vector] = Weight(vector, (n,), info.format, (Rows(name, (row or 0) * n, n),))
        return vector

    def transpose(self, name: str, *shape: int) -> str:
        """In place of a weight that was taken, the columns of its matrices as rows, of this shape."""
        weight, transposed = self.weights.pop(name), f"{name} transposed"
        self.weights[transposed] = Weight(transposed, shape, "F32", weight.rows, transposed=True)
        return transposed

    def _need_floats(self, name: str, format: str) -> None:
        if not FORMATS[format].is_float:
            raise UnsupportedError(
                f"{self._where}: tensor {name} is a vector of type {format}; F32, F16 and BF16 are supported",
                tensor=name,
            )

    def pass_over(self, *names: str) -> None:
        """Tensors that files may carry and that no result depends on."""
        self.taken.update(names)

    def constant(self, name: str, values: Sequence[float]) -> str:
        """A vector that is in no file."""
        self.weights[name] = Weight(name, (len(values),), "F32", values=tuple(values))
        return name

    def table(self, name: str, table: Table) -> str:
        self.tables[name] = table
        return name

    def rope_table(self, rope: RopeTable, *, neox: bool, pairs: int = 0) -> str:
        """The rotary table, with the file's factors for the angles; where these are for `pairs` pairs, the first ones.
        Factors for a long context are used where the context exceeds the one before scaling."""
        long = self._context > rope.original
        for name, used in (("rope_freqs", True), ("rope_factors_long", long), ("rope_factors_short", not long)):
            if self.has(f"{name}.weight"):
                factors = self._factors(f"{name}.weight", pairs or rope.rot // 2)[: rope.rot // 2]
                rope = replace(rope, factors=factors) if used else rope
        self.neox["rope"] = neox
        return self.table("rope", rope)

    def local_rope_table(self, rope: RopeTable, *, neox: bool) -> str:
        """A second rotary table, for the layers with a window; no factors of the file go into it."""
        self.neox["rope.local"] = neox
        return self.table("rope.local", rope)

    def values(self, name: str, *shape: int) -> F32:
        """The numbers of a short tensor that go into the graph itself: no op reads the tensor."""
        values = self._values(name, *shape)
        if not np.isfinite(values).all():
            raise FileError(f"{self._where}: tensor {name} holds a value that is not finite", tensor=name)
        return values

    def _values(self, name: str, *shape: int) -> F32:
        self.weight(name, *shape)
        weight = self.weights.pop(name)
        raw = np.frombuffer(self._file.data(name), np.uint8).reshape(-1, FORMATS[weight.format].row_bytes(shape[-1]))
        values: F32 = FORMATS[weight.format].decode(raw, shape[-1]).reshape(shape)
        return values

    def _factors(self, name: str, n: int) -> tuple[float, ...]:
        factors = self._values(name, n)
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise FileError(f"{self._where}: tensor {name} has a factor that is not above 0", tensor=name)
        return tuple(factors.tolist())

    def number(self, name: str) -> float:
        """The one number of a tensor, as a constant of the graph."""
        return float(self.values(name, 1)[0])

    def refuse_left(self, but: tuple[str, ...], what: str) -> None:
        """Every tensor of the file must have been taken, but those whose names begin so, and `.input_scale`, by which
        other engines quantise inputs."""
        for name in self._file.tensors:
            if name not in self.taken and not name.startswith(but) and not name.endswith(".input_scale"):
                raise FileError(
                    f"{self._where}: tensor {printable(name)} is no part of {what}",
                    suggestion="ignoring it would give another model's answers: use a file made for this family",
                    tensor=name,
                )


def stem_of(name: str) -> str:
    return name.removesuffix(".weight")


def pieces(name: str, first: int, count: int, of: int, heads: int = 1) -> RowRanges:
    """Of several heads with `of` rows each, `count` rows of each head, from `first` on."""
    return tuple(Rows(name, head * of + first, count) for head in range(heads))


def rows_of(parts: RowRanges) -> str:
    """The rows as text, for a name; of several parts the rows of the first, and "..."."""
    return f"[{parts[0].first}:{parts[0].first + parts[0].count}{', ...' if len(parts) > 1 else ''}]"


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n > 1)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n}" for n in shape)
