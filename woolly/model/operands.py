"""What a graph is made of: nodes and their operands.

An operand of an op is a node before it, a weight of the file, a state (a cache), a table by position (`tables.py`), or
an input of the step. All are descriptions: none holds the bytes of a weight, and none changes after it is made. An op
checks the `kind` of each operand it takes (`ops/kinds.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from woolly.model.tables import Table

Count = Literal["rows", "wants", "spans"]  # one per token of the step, per wanted row, or per span
Dtype = Literal["f32", "q8", "q16", "ids"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a tensor of the file: of each expert's matrix, where it has several; of a vector some values."""

    tensor: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Weight:
    """Tensors of the file as one operand: (experts, rows, k), (rows, k) or (n,), the rows of the parts one after the
    other.

    `alternate` asks for the panels of its two parts in turn (gate and up); it does not change the logical rows. Rows of
    a `transposed` one are the columns of each matrix in the file, decoded. A vector may have `values` of its own, which
    are in no file.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    parts: tuple[Rows, ...] = ()  # none: the whole tensor of this name
    alternate: bool = False
    transposed: bool = False
    values: tuple[float, ...] = ()

    @property
    def rows(self) -> tuple[Rows, ...]:
        """The rows of tensors that make up the weight."""
        return self.parts or (Rows(self.name, 0, self.shape[max(len(self.shape) - 2, 0)]),)

    @property
    def kind(self) -> str:
        return ("vector", "matrix", "experts")[len(self.shape) - 1]


@dataclass(frozen=True, slots=True)
class State:
    """What a layer keeps of a sequence from step to step.

    rows: keys and values, rows of (heads, dim) and (heads, value dim) per position, kept as `dtype` (f32, f16, q8) in
        cache pages. With a window a position is read by itself and at most the `window` - 1 positions after it; with
        0 there is no such bound. The shape is (heads, dim) where dim and value dim are equal, else (heads, dim, value
        dim). A `latent` one has one row alone for each position, whose first columns are its values.
    carry: one blob of float32 values of this shape per sequence, in a slot.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["rows", "carry"] = "rows"
    dtype: str = "f32"
    window: int = 0
    latent: bool = False

    @property
    def heads(self) -> int:
        return self.shape[0]

    @property
    def dim(self) -> int:
        return self.shape[1]

    @property
    def value_dim(self) -> int:
        return self.shape[-1]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `rows` says how many rows it has in a step: one per token, per wanted row, or per span."""

    name: str
    op: str
    inputs: tuple[str, ...]  # "" is an optional operand left out
    attrs: Mapping[str, int | float]
    rows: Count
    width: int
    dtype: Dtype = "f32"

    @property
    def kind(self) -> str:
        return self.dtype if self.width else "order"


@dataclass(frozen=True, slots=True)
class Input:
    """An array a step brings: tokens and positions [rows], spans [spans, SPAN columns], scales [spans, adapters], want
    [wants]."""

    kind: str


INPUTS = {name: Input(name) for name in ("tokens", "positions", "spans", "scales", "want")}

Operand: TypeAlias = Node | Weight | State | Table | Input
