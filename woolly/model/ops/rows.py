"""Rows that come in, by token or position, and rows that go out: the wanted ones, or one for each span."""

from __future__ import annotations

from typing import Any

import numpy as np

from woolly.model.operands import Node, Weight
from woolly.model.ops.kinds import Positions, Spans, Tokens, Want
from woolly.model.ops.numerics import F32, f32
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, need
from woolly.model.ops.weights import Matrix


def embed_shape(tokens: Any, w: Weight) -> Shape:
    return Shape("rows", w.shape[1])


@op(embed_shape)
def embed(tokens: Tokens, w: Matrix) -> F32:
    """The decoded rows of w that the tokens name."""
    return w.take(tokens)


@op(embed_shape)
def embed_positions(positions: Positions, w: Matrix) -> F32:
    """The decoded rows of w at the positions: it has a row for each position of the context."""
    return w.take(positions)


def take_shape(x: Node, want: Any) -> Shape:
    need(x.rows == "rows", f"{x.name} is taken already")
    return Shape("wants", x.width)


@op(take_shape)
def take(x: F32, want: Want) -> F32:
    """The wanted rows."""
    return x[want]


def pool_shape(x: Node, spans: Any) -> Shape:
    need(x.rows == "rows", f"{x.name} is pooled already")
    return Shape("spans", x.width)


@op(pool_shape)
def mean_pool(x: F32, spans: Spans) -> F32:
    """The mean of each span's rows: added in the order of positions, then divided by their number."""
    out = np.empty((len(spans), x.shape[1]), f32)
    for index, (row, count, *_) in enumerate(spans.tolist()):
        total = x[row]
        for at in range(row + 1, row + count):
            total = total + x[at]
        out[index] = total / f32(count)
    return out


@op(pool_shape)
def first_row(x: F32, spans: Spans) -> F32:
    """The first row of each span."""
    return x[spans[:, 0]]
