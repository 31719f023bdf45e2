"""The types of a plan: what a device offers, how large a step may be, and the Program itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from woolly.model import Rows, Table
from woolly.model.ops.numerics import F32

OPERANDS, ATTRS = 8, 6  # the most of one instruction

# Where an operand lies: in the work area, a cache page, the arrays of a step (BATCH), the slot of a sequence, memory
# that each thread has for itself (PER_THREAD), ...
NOTHING, WORK, WEIGHT, TABLE, PAGE, BATCH, PER_THREAD, SLOT = range(8)

COUNTS = ("rows", "wants", "spans")  # what the rows of an instruction are counted by, by number


class Operand(NamedTuple):
    """Where the bytes of an instruction's operand lie and how they are read; by default an operand is left out."""

    kind: int = NOTHING
    place: int = 0
    stride: int = 0  # bytes from row to row; of a weight from panel to panel
    layout: str = "none"  # in the code its index in Program.layouts
    width: int = 0
    height: int = 0
    nbytes: int = 0
    group: int = 0  # of pages

    def encoded(self, layouts: Mapping[str, int]) -> tuple[int, ...]:
        """The numbers that stand for the operand in the code."""
        return tuple(layouts[value] if isinstance(value, str) else value for value in self)


OPERAND = np.dtype([(name, np.int64) for name in Operand._fields], align=True)
INSTRUCTION = np.dtype(
    [
        ("op", np.int64),
        ("rows", np.int64),  # what its rows are counted by: a number of COUNTS
        ("barrier", np.int64),  # 1: everything before must be complete
        ("out", OPERAND),
        ("inputs", OPERAND, (OPERANDS,)),
        ("attrs", np.float64, (ATTRS,)),
    ],
    align=True,
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a device offers. `page` is positions per cache page, `panel` rows of a packed weight that lie together,
    `fused` the passes whose ops it has.

    In a step of at most `small_step` rows each thread does small ops for itself, which is cheaper than to wait: the
    second list of instructions of a program. A device that has no such threads says 0, and reads the first alone.
    """

    name: str
    page: int
    panel: int
    small_step: int
    fused: frozenset[str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest step: tokens, wanted rows of logits, sequences, and positions of a sequence."""

    rows: int
    wants: int
    sequences: int
    context: int


@dataclass(frozen=True, slots=True)
class PackOrder:
    """Put a weight at `place`: the rows of its parts one after the other, padded to whole panels with zeros.

    `alternate` takes a panel of each part in turn instead, each part padded; `transposed` takes columns for rows, as
    float32 values. A `plain` weight is a vector of float32 values, which may be `values` instead of parts of the file.
    """

    weight: str
    parts: tuple[Rows, ...]
    values: tuple[float, ...]
    alternate: bool
    layout: str
    place: int
    nbytes: int
    rows: int  # after packing, padding included
    columns: int
    experts: int = 1  # matrices of one shape, one after the other
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class OpName:
    """How an instruction names its kernel: the name, the number of operands, the attributes in order."""

    name: str
    operands: int
    attrs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table by position and where it lies; rows are made as positions are first used."""

    table: Table
    place: int


@dataclass(frozen=True, slots=True)
class PageGroup:
    """Layers with one window: they share pages of `target.page` positions, which are let go behind the window."""

    window: int  # 0: all positions are kept
    page_bytes: int


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a step: rows of floats, one per wanted row or per span."""

    name: str
    place: int  # in the work area
    rows: str  # one of COUNTS
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A model for one device: flat, pure data. Print it, compare it, store it."""

    target: Target
    bounds: Bounds
    ops: tuple[OpName, ...]
    layouts: tuple[str, ...]
    code: NDArray[np.void]  # of INSTRUCTION
    small_step: NDArray[np.void]  # for steps of few rows: fewer barriers, some places are PER_THREAD
    packs: tuple[PackOrder, ...]
    tables: tuple[TablePlace, ...]
    weight_bytes: int
    token_bytes: int  # of the weights that a token reads: of experts those it chooses
    work_bytes: int
    per_thread_bytes: int
    table_bytes: int
    groups: tuple[PageGroup, ...]
    slot_bytes: int  # what one sequence carries
    outputs: tuple[Output, ...]
    vocab: int
    single_step: bool  # a sequence is computed in a single step
    adapters: int = 0
    adapted: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, INSTRUCTION))
    """As code, for steps in which a row has an adapter; nothing without adapters."""
    adapted_small_step: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, INSTRUCTION))
    matrices: Mapping[str, F32] = field(default_factory=dict)  # weights that are in no file: those of adapters

    @property
    def page_bytes(self) -> int:
        """Of one page of each group: `target.page` positions of every layer."""
        return sum(group.page_bytes for group in self.groups)

    def walked(self, rows: int, wants: int) -> NDArray[np.void]:
        """The instructions of a step of `rows` rows, of which `wants` are wanted."""
        return self.small_step if max(rows, wants) <= self.target.small_step else self.code
