"""Experts: the choice of some for each row, and products with their matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from woolly.model.operands import Node, Weight
from woolly.model.ops.kinds import Ids, Vector, Wide
from woolly.model.ops.linear import GATES
from woolly.model.ops.numerics import F32, Quantized, f32, fma
from woolly.model.ops.products import product
from woolly.model.ops.registry import OPS, op
from woolly.model.ops.shapes import Shape, fits, need
from woolly.model.ops.weights import Experts


def top_experts_shape(scores: Node, *, count: int, groups: int, groups_used: int) -> Shape:
    need(groups >= 1 and scores.width % groups == 0, f"{groups} groups of {scores.width} experts")
    each = scores.width // groups
    need(groups == 1 or each >= 2, f"a group has {each} experts, its score is that of two")
    need(1 <= groups_used <= groups, f"{groups_used} of {groups} groups")
    need(1 <= count <= groups_used * each, f"{count} of {groups_used * each} experts")
    return Shape(scores.rows, count, "ids")


@op(top_experts_shape)
def top_experts(scores: F32, *, count: int, groups: int, groups_used: int) -> Ids:
    """The experts with the `count` largest scores of each row, the largest first; ties go to the lower one.

    With several groups only those of the best `groups_used` count: a group's score is the sum of its two best, the
    larger + the second, and again ties go to the lower one. A NaN comes after all numbers.
    """
    order = _ranked(scores)
    if groups > 1:
        each = scores.shape[1] // groups
        grouped = scores.reshape(len(scores), groups, each)
        best = np.take_along_axis(grouped, _ranked(grouped)[..., :2], -1)
        used = np.zeros((len(scores), groups), np.bool_)
        np.put_along_axis(used, _ranked(best[..., 0] + best[..., 1])[:, :groups_used], True, 1)
        left_out = ~np.take_along_axis(used, order // each, 1)
        order = np.take_along_axis(order, np.argsort(left_out, axis=1, kind="stable"), 1)
    return order[:, :count].astype(np.int32)


def _ranked(x: F32) -> NDArray[np.intp]:
    """Indices along the last axis, that of the largest first."""
    return np.argsort(-x, axis=-1, kind="stable")


def take_scores_shape(scores: Node, ids: Node) -> Shape:
    need(scores.rows == ids.rows, f"{scores.name} and {ids.name} differ in rows")
    return Shape(scores.rows, ids.width)


@op(take_scores_shape)
def take_scores(scores: F32, ids: Ids) -> F32:
    """The scores of the chosen experts, in the order of their ranks."""
    return np.take_along_axis(scores, ids, 1)


def expert_linear_shape(x: Node, w: Weight, ids: Node | None) -> Shape:
    if ids is None:
        experts, n, k = w.shape
        fits(x, w, experts * k)
        return Shape(x.rows, experts * n)
    return Shape(x.rows, ids.width * _expert_product(x, w, ids))


@op(expert_linear_shape)
def expert_linear(x: F32 | Quantized | Wide, w: Experts, ids: Ids | None) -> F32:
    """Each row times the matrices of its experts, transposed; the results one after the other.

    A row is as wide as the matrices, the same for all its experts, or has a piece of that width for each of them.
    Without ids it has a piece for each matrix there is, as heads have theirs.
    """
    if ids is None:
        rows = len(x.q) if isinstance(x, Quantized) else len(x)
        ids = np.tile(np.arange(w.count, dtype=np.int32), (rows, 1))
    rows, count = ids.shape
    values = x.q if isinstance(x, Quantized) else x
    pieces = values.shape[1] // w.k
    each = x.cut(pieces) if isinstance(x, Quantized) else x.reshape(rows * pieces, w.k)
    out = np.empty((rows, count, w.rows), f32)
    for expert in np.unique(ids).tolist():
        row, rank = np.nonzero(ids == expert)
        some = row if pieces == 1 else row * count + rank
        out[row, rank] = product(each.take(some) if isinstance(each, Quantized) else each[some], w.matrix(expert))
    return out.reshape(rows, -1)


def expert_bias_shape(x: Node, b: Weight, ids: Node) -> Shape:
    n = _piece(x, ids.width)
    need(x.rows == ids.rows, f"{x.name} and {ids.name} differ in rows")
    need(b.shape[0] % n == 0, f"{b.name} has {b.shape[0]} values, which is no multiple of {n}")
    return Shape(x.rows, x.width)


@op(expert_bias_shape)
def expert_bias(x: F32, b: Vector, ids: Ids) -> F32:
    """Each piece of a row plus its expert's piece of b."""
    return (_pieces(x, ids.shape[1]) + b.reshape(-1, x.shape[1] // ids.shape[1])[ids]).reshape(x.shape)


def expert_scale_shape(x: Node, s: Weight, ids: Node) -> Shape:
    _piece(x, ids.width)
    need(x.rows == ids.rows, f"{x.name} and {ids.name} differ in rows")
    return Shape(x.rows, x.width)


@op(expert_scale_shape)
def expert_scale(x: F32, s: Vector, ids: Ids) -> F32:
    """Each piece of a row times its expert's number."""
    return (_pieces(x, ids.shape[1]) * s[ids][..., None]).reshape(x.shape)


def expert_inputs_shape(x: Node, weights: Node) -> Shape:
    need(x.rows == weights.rows, f"{x.name} and {weights.name} differ in rows")
    return Shape(x.rows, weights.width * x.width)


@op(expert_inputs_shape)
def expert_inputs(x: F32, weights: F32) -> F32:
    """A row times each of its weights; the results one after the other."""
    return (x[:, None] * weights[..., None]).reshape(len(x), -1)


def expert_sum_shape(x: Node, weights: Node | None, *, count: int) -> Shape:
    need(weights is None or (weights.rows, weights.width) == (x.rows, count), f"{x.name} has another number of weights")
    return Shape(x.rows, _piece(x, count))


@op(expert_sum_shape)
def expert_sum(x: F32, weights: F32 | None, *, count: int) -> F32:
    """The pieces of a row added in the order of their ranks: w0 * x0, then fma(w, x, y); or x0, then y + x."""
    pieces = _pieces(x, count)
    y = pieces[:, 0] if weights is None else pieces[:, 0] * weights[:, :1]
    for rank in range(1, count):
        piece = pieces[:, rank]
        y = y + piece if weights is None else fma(weights[:, rank, None], piece, y)
    return y


def _pieces(x: F32, count: int) -> F32:
    """Rows that are as many pieces, [rows, count, width of a piece]."""
    return x.reshape(len(x), count, -1)


def expert_gate_up_shape(x: Node, w: Weight, ids: Node, *, act: int) -> Shape:
    n = _expert_product(x, w, ids)
    need(w.alternate and len(w.parts) == 2 and n % 2 == 0, f"{w.name} is no pair of gate and up")
    return Shape(x.rows, ids.width * n // 2)


@op(expert_gate_up_shape)
def expert_gate_up(x: F32 | Quantized | Wide, w: Experts, ids: Ids, *, act: int) -> F32:
    """act(gate) * up of each expert of a row, where the rows of its matrix are gate's, then up's."""
    y = _pieces(expert_linear(x, w, ids), ids.shape[1])
    half = y.shape[2] // 2
    gate: F32 = OPS[GATES[act]](y[..., :half])
    return (gate * y[..., half:]).reshape(len(ids), -1)


def _expert_product(x: Node, w: Weight, ids: Node) -> int:
    """Rows of each matrix of w; x has a row for all experts of ids, or a piece for each."""
    _, n, k = w.shape
    need(x.rows == ids.rows, f"{x.name} and {ids.name} differ in rows")
    fits(x, w, k if x.width == k else ids.width * k)
    return n


def _piece(x: Node, count: int) -> int:
    """The width of each of `count` pieces of a row."""
    need(count >= 1 and x.width % count == 0, f"{x.name} is {x.width} wide, which is no multiple of {count}")
    return x.width // count
