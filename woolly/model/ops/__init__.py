"""ops: every operation of a graph, defined to the bit in NumPy, with the rule for its shape.

A file for each group of ops, and beside them what they are written with: numerics, products, attention, and the values
of weights and states. An op is in OPS once its file has been imported, and this imports them all.
"""

from __future__ import annotations

from woolly.model.ops import (
    attend,
    elementwise,
    experts,
    linear,
    lora,
    norms,
    positions,
    quantize,
    recurrence,
    rows,
)
from woolly.model.ops.linear import GATES
from woolly.model.ops.registry import OPS, Op
from woolly.model.ops.shapes import Shape

GROUPS = (rows, elementwise, norms, positions, attend, recurrence, linear, experts, lora, quantize)

__all__ = ["GATES", "GROUPS", "OPS", "Op", "Shape"]
