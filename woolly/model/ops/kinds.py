"""The kinds of operands: what an op's parameter is annotated with, and the kind of operand that this takes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly.model.ops.numerics import F32, Quantized

Wide: TypeAlias = Quantized  # of 16 bits
Vector: TypeAlias = F32  # a weight of one dimension
Tokens: TypeAlias = NDArray[np.int32]  # [rows]
Positions: TypeAlias = NDArray[np.int32]  # [rows]
Spans: TypeAlias = NDArray[np.int32]  # [spans, 5]: first row, count, first position, slot, adapter
Scales: TypeAlias = F32  # [spans, adapters]: of spans whose adapter is 1
Want: TypeAlias = NDArray[np.int32]  # [wants]: rows
Ids: TypeAlias = NDArray[np.int32]  # [rows, count]: experts
Order: TypeAlias = None  # no value: the named node comes before

# Which kind of operand each annotation takes.
KINDS = {
    "F32": "f32",
    "Quantized": "q8",
    "Wide": "q16",
    "Ids": "ids",
    "Matrix": "matrix",
    "Experts": "experts",
    "Vector": "vector",
    "Table": "table",
    "Cache": "rows",
    "Carry": "carry",
    "Order": "order",
    "Tokens": "tokens",
    "Positions": "positions",
    "Spans": "spans",
    "Scales": "scales",
    "Want": "want",
}
