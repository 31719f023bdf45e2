"""Ops that measure each row, or each head of it, and change it by the measure."""

from __future__ import annotations

import numpy as np

from woolly.model.operands import Node, Weight
from woolly.model.ops.kinds import Vector
from woolly.model.ops.numerics import F32, dot32, exp32, f32, fma, max32, tree16
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, like, need, pair


def norm_shape(x: Node, w: Weight | None, *, eps: float, heads: int = 1) -> Shape:
    need(heads >= 1 and x.width % heads == 0, f"{heads} heads do not divide the width {x.width} of {x.name}")
    fits = w is None or w.shape in ((x.width // heads,), (x.width,))
    need(fits, f"the weight of the norm of {x.name}, {x.width} wide, has another length")
    return Shape(x.rows, x.width)


@op(norm_shape)
def rms_norm(x: F32, w: Vector | None, *, eps: float, heads: int) -> F32:
    """Divide each head of each row by its root mean square, then scale by w, one for all heads or as wide as the row;
    ordinary norms have one head."""
    y = x.reshape(len(x), heads, -1)
    r = f32(1) / np.sqrt(dot32(y, y) / f32(y.shape[2]) + f32(eps))
    return _weighed(y * r, w).reshape(x.shape)


def layer_norm_shape(x: Node, w: Weight | None, b: Weight | None, *, eps: float, heads: int) -> Shape:
    need(b is None or b.shape == (x.width,), f"the bias of the norm of {x.name} has another length")
    return norm_shape(x, w, eps=eps, heads=heads)


@op(layer_norm_shape)
def layer_norm(x: F32, w: Vector | None, b: Vector | None, *, eps: float, heads: int) -> F32:
    """Subtract the mean of each head of each row, divide by its standard deviation, scale by w, then + b."""
    y = x.reshape(len(x), heads, -1)
    n = f32(y.shape[2])
    y = y - dot32(y, np.ones_like(y)) / n
    r = f32(1) / np.sqrt(dot32(y, y) / n + f32(eps))
    z = _weighed(y * r, w).reshape(x.shape)
    return z if b is None else z + b


def _weighed(y: F32, w: Vector | None) -> F32:
    """Heads [rows, heads, n] times w, which is one for all heads or has all of them."""
    return y if w is None else y * w.reshape(-1, y.shape[2])


@op(pair)
def rescale(x: F32, like: F32) -> F32:
    """Each row of x with the length of that row of like: x * (|like| / |x|)."""
    length: F32 = np.sqrt(dot32(like, like))
    length_of_x: F32 = np.sqrt(dot32(x, x))
    return x * (length / length_of_x)


@op(like)
def sparsify(x: F32, *, factor: float) -> F32:
    """max(x - t, 0), where t is the row's mean plus `factor` standard deviations (over n - 1)."""
    n = x.shape[1]
    mean = dot32(x, np.ones_like(x)) / f32(n)
    y = x - mean
    deviation = np.sqrt(dot32(y, y) / f32(n - 1))
    return max32(x - fma(deviation, f32(factor), mean), f32(0))


@op(like)
def softmax(x: F32) -> F32:
    """e^(x - m) over their sum, for each row, m its largest: 16 lane sums (lane i mod 16), then tree16."""
    p = exp32(x - x.max(-1, keepdims=True))
    lanes = np.zeros((len(x), 16), f32)
    for i in range(0, x.shape[1], 16):
        some = p[:, i : i + 16]
        lanes[:, : some.shape[1]] += some
    y: F32 = p / tree16(lanes)
    return y


@op(like)
def normalize(x: F32, *, least: float) -> F32:
    """Each row over its sum, added from the first column to the last; a sum below `least` is `least`."""
    total = x[:, 0]
    for c in range(1, x.shape[1]):
        total = total + x[:, c]
    y: F32 = x / max32(np.full_like(total, least), total)[:, None]
    return y
