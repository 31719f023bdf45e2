"""Ops that read a table by position."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from woolly.model.operands import Node
from woolly.model.ops.kinds import Positions
from woolly.model.ops.numerics import F32, f32
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, need
from woolly.model.tables import Table


def rope_shape(x: Node, positions: Any, table: Table, *, heads: int, rot: int, neox: int) -> Shape:
    need(x.rows == "rows", f"{x.name} has no positions")
    need(heads >= 1 and x.width % heads == 0, f"{heads} heads do not divide the width {x.width} of {x.name}")
    need(rot % 2 == 0 and 2 <= rot <= x.width // heads, f"{rot} rotated of {x.width // heads}")
    need(table.width == rot and neox in (0, 1), f"the table is {table.width} wide for {rot} rotated")
    return Shape(x.rows, x.width)


@op(rope_shape)
def rope(x: F32, positions: Positions, table: Table, *, heads: int, rot: int, neox: int) -> F32:
    """Turn the first `rot` columns of each head by its position's angles: a*c - b*s and a*s + b*c.

    (a, b) are columns (2i, 2i + 1), or (i, i + rot/2) with neox = 1; the table has cosines, then sines.
    """
    angles = _rows_at(table, positions)[:, None, :]
    c, s = angles[..., : rot // 2], angles[..., rot // 2 :]
    y = x.reshape(len(x), heads, -1).copy()
    first, second = (slice(0, rot // 2), slice(rot // 2, rot)) if neox else (slice(0, rot, 2), slice(1, rot, 2))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = a * c - b * s, a * s + b * c
    return y.reshape(x.shape)


def scale_by_position_shape(x: Node, positions: Any, table: Table) -> Shape:
    need(x.rows == "rows" and table.width == 1, f"the table of {x.name} is {table.width} wide, not 1")
    return Shape(x.rows, x.width)


@op(scale_by_position_shape)
def scale_by_position(x: F32, positions: Positions, table: Table) -> F32:
    """Scale each row by its position's entry of the table."""
    return x * _rows_at(table, positions)


_TABLE_BLOCK = 256


@lru_cache(maxsize=64)
def _table_block(table: Table, index: int) -> F32:
    return table.rows(index * _TABLE_BLOCK, (index + 1) * _TABLE_BLOCK)


def _rows_at(table: Table, positions: Positions) -> F32:
    """The table's rows at these positions, [rows, width]."""
    out = np.empty((len(positions), table.width), f32)
    block = positions // _TABLE_BLOCK
    for index in np.unique(block).tolist():
        some = block == index
        out[some] = _table_block(table, index)[positions[some] % _TABLE_BLOCK]
    return out
