"""What adapters add to a product: the two small products of their own, and the product with their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from woolly.model.operands import Node, Weight
from woolly.model.ops.kinds import Scales, Spans, Vector, Want, Wide
from woolly.model.ops.linear import finished, gate_up_shape, gated, linear_shape
from woolly.model.ops.numerics import F32, Quantized, f32, fma
from woolly.model.ops.products import product
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, need
from woolly.model.ops.weights import Matrix


def delta_down_shape(x: Node, a: Weight, owners: Weight, spans: Any, scales: Any, want: Any) -> Shape:
    need(a.shape[1] == x.width, f"{a.name} has {a.shape[1]} columns, {x.name} is {x.width} wide")
    return _owned(x, owners, a.shape[0], want, a.shape[0])


@op(delta_down_shape)
def delta_down(
    x: F32 | Quantized | Wide, a: Matrix, owners: Vector, spans: Spans, scales: Scales, want: Want | None
) -> F32:
    """The first product of adapters: x times a transposed, as with float weights, times the scale of the row's span.

    Each 16 rows of a are of one adapter, the first of their three numbers in `owners`; 0 for rows that do not use it.
    """
    values = x.values if isinstance(x, Quantized) else x
    by = _scales_of(spans, scales, want)
    each = np.repeat(by[:, owners.reshape(-1, 3)[:, 0].astype(np.intp)], 16, axis=1)
    return np.where(each == 0, f32(0), product(values, a) * each)


def delta_up_shape(low: Node, b: Weight, owners: Weight, spans: Any, scales: Any, want: Any) -> Shape:
    need(b.shape[1] == low.width, f"{b.name} has {b.shape[1]} columns, {low.name} is {low.width} wide")
    return _owned(low, owners, low.width, want, b.shape[0])


@op(delta_up_shape)
def delta_up(low: F32, b: Matrix, owners: Vector, spans: Spans, scales: Scales, want: Want | None) -> F32:
    """What adapters add to a product: low times b transposed, as with float weights, over the adapters of each row.

    `owners` has the first and the end of the rows that each 16 columns of b are for; these columns are left out of
    blocks of 16 outputs without such a row. A row without an adapter gets -0, which added to anything changes no bit.
    """
    by, n = _scales_of(spans, scales, want), b.rows
    sums = np.zeros((4, len(low), n), f32)
    for block, (adapter, first, end) in enumerate(owners.reshape(-1, 3).astype(int).tolist()):
        rows, some = np.flatnonzero(by[:, adapter]), slice(first // 16 * 16, min(-(-end // 16) * 16, n))
        for k in range(16 * block, 16 * block + 16):
            sums[k % 4, rows, some] = fma(low[rows, k, None], b.values[some, k], sums[k % 4, rows, some])
    y = (sums[0] + sums[1]) + (sums[2] + sums[3])
    return np.where(_of_rows(spans, spans[:, 4], want)[:, None] == 0, f32(-0.0), y)


def _scales_of(spans: Spans, scales: Scales, want: Want | None) -> F32:
    """The scales of each row's adapters, [rows, adapters]; zeros where its span has none."""
    return _of_rows(spans, np.where(spans[:, 4:5] == 0, f32(0), scales), want)


def _of_rows(spans: Spans, each: NDArray[Any], want: Want | None) -> NDArray[Any]:
    """A value of each span, repeated for each of its rows, or for the wanted rows alone."""
    rows = np.repeat(each, spans[:, 1], axis=0)
    return rows if want is None else rows[want]


def adapted_linear_shape(
    x: Node, w: Weight, bias: Weight | None, residual: Node | None, delta: Node, *, scale: float
) -> Shape:
    shape = linear_shape(x, w, bias, residual, scale=scale)
    _delta(delta, x, w)
    return shape


@op(adapted_linear_shape)
def adapted_linear(
    x: F32 | Quantized | Wide, w: Matrix, bias: Vector | None, residual: F32 | None, delta: F32, *, scale: float
) -> F32:
    """linear, with the delta of adapters added to the product before anything else."""
    return finished(product(x, w) + delta, bias, residual, scale)


def adapted_gate_up_shape(x: Node, w: Weight, delta: Node, *, act: int) -> Shape:
    _delta(delta, x, w)
    return gate_up_shape(x, w, act=act)


@op(adapted_gate_up_shape)
def adapted_gate_up(x: F32 | Quantized | Wide, w: Matrix, delta: F32, *, act: int) -> F32:
    """gate_up, with the delta of adapters added to both products."""
    return gated(product(x, w) + delta, act)


def _owned(x: Node, owners: Weight, ranks: int, want: Any, width: int) -> Shape:
    need(ranks % 16 == 0 and owners.shape == (3 * (ranks // 16),), f"{owners.name} has no owner for each 16 ranks")
    need(x.rows == ("rows" if want is None else "wants"), f"{x.name} has rows of other spans")
    return Shape(x.rows, width)


def _delta(delta: Node, x: Node, w: Weight) -> None:
    need((delta.rows, delta.width) == (x.rows, w.shape[0]), f"{delta.name} does not fit {w.name}")
