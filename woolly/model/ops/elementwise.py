"""Ops on each element, column or head of a row by itself."""

from __future__ import annotations

import numpy as np

from woolly.model.operands import Node, Weight
from woolly.model.ops.kinds import Vector
from woolly.model.ops.numerics import (
    F32,
    dot32,
    exp32,
    f32,
    fma,
    gelu32,
    max32,
    min32,
    sigmoid32,
    silu32,
    softplus32,
    tanh32,
)
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, like, need, pair, vector


@op(like)
def scale(x: F32, *, by: float) -> F32:
    """x * by."""
    return x * f32(by)


@op(like)
def divide(x: F32, *, by: float) -> F32:
    """x / by."""
    return x / f32(by)


@op(pair)
def add(x: F32, y: F32) -> F32:
    """x + y."""
    return x + y


@op(pair)
def mul(x: F32, y: F32) -> F32:
    """x * y."""
    return x * y


@op(like)
def silu(x: F32) -> F32:
    """x / (1 + e^-x)."""
    return silu32(x)


@op(like)
def gelu(x: F32) -> F32:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    return gelu32(x)


@op(like)
def relu(x: F32) -> F32:
    """max(x, 0)."""
    return max32(x, f32(0))


@op(like)
def relu2(x: F32) -> F32:
    """max(x, 0)^2."""
    y = max32(x, f32(0))
    return y * y


@op(like)
def sigmoid(x: F32) -> F32:
    """1 / (1 + e^-x)."""
    return sigmoid32(x)


@op(like)
def tanh(x: F32) -> F32:
    """The hyperbolic tangent."""
    return tanh32(x)


@op(like)
def exp(x: F32) -> F32:
    """e^x, for x within -87 and 88."""
    return exp32(x)


@op(like)
def softplus(x: F32) -> F32:
    """ln(1 + e^x)."""
    return softplus32(x)


@op(like)
def soft_cap(x: F32, *, cap: float) -> F32:
    """cap * tanh(x / cap)."""
    return tanh32(x / f32(cap)) * f32(cap)


@op(like)
def clamp(x: F32, *, least: float, most: float) -> F32:
    """x, not below `least` and not above `most`."""
    return min32(f32(most), max32(f32(least), x))


@op(like)
def xielu(x: F32, *, above: float, below: float, beta: float, eps: float) -> F32:
    """above x^2 + beta x where x > 0, else (e^min(x, eps) - 1 - x) below + beta x."""
    rise = f32(above) * (x * x)
    fall = ((exp32(min32(x, f32(eps))) - f32(1)) - x) * f32(below)
    return fma(f32(beta), x, np.where(x > 0, rise, fall))


@op(pair)
def clamped_gate(gate: F32, up: F32, *, alpha: float, limit: float) -> F32:
    """g / (1 + e^(-alpha g)) * (u + 1), with g = min(gate, limit) and u = up within +-limit."""
    g = min32(f32(limit), gate)
    u = min32(f32(limit), max32(f32(-limit), up))
    y: F32 = (g / (f32(1) + exp32(-(g * f32(alpha))))) * (u + f32(1))
    return y


@op(vector)
def add_bias(x: F32, b: Vector) -> F32:
    """x + b, for each row."""
    return x + b


@op(vector)
def mul_vector(x: F32, w: Vector) -> F32:
    """x * w, for each row."""
    return x * w


@op(vector)
def div_vector(x: F32, w: Vector) -> F32:
    """x / w, for each row."""
    return x / w


def add_scaled_shape(x: Node, y: Node, by: Node) -> Shape:
    need((by.rows, by.width) == (x.rows, 1), f"{by.name} has no number for each row of {x.name}")
    return pair(x, y)


@op(add_scaled_shape)
def add_scaled(x: F32, y: F32, by: F32) -> F32:
    """x + y * by, by one number for each row, rounded once."""
    return fma(y, by, x)


def scale_heads_shape(x: Node, by: Node | Weight) -> Shape:
    heads, rows = (by.width, by.rows) if hasattr(by, "width") else (by.shape[0], x.rows)
    need(x.rows == rows and x.width % heads == 0, f"{by.name} has no number for each head of {x.name}")
    return Shape(x.rows, x.width)


@op(scale_heads_shape)
def scale_heads(x: F32, by: F32 | Vector) -> F32:
    """Each head of each row times its own number; by is as wide as there are heads, for each row or for all."""
    y: F32 = x.reshape(len(x), by.shape[-1], -1) * by[..., None]
    return y.reshape(x.shape)


def head_sums_shape(x: Node, *, heads: int) -> Shape:
    need(heads >= 1 and x.width % heads == 0, f"{heads} heads do not divide the width {x.width} of {x.name}")
    return Shape(x.rows, heads)


@op(head_sums_shape)
def head_sums(x: F32, *, heads: int) -> F32:
    """The sum of each head of each row, in the order of a norm's sums (dot32 with ones)."""
    y = x.reshape(len(x), heads, -1)
    return dot32(y, np.ones_like(y))[..., 0]


def join_shape(x: Node, y: Node, *, heads: int) -> Shape:
    need(x.rows == y.rows, f"{x.name} and {y.name} differ in rows")
    need(heads >= 1 and x.width % heads == y.width % heads == 0, f"{heads} heads of {x.name} and {y.name}")
    return Shape(x.rows, x.width + y.width)


@op(join_shape)
def join(x: F32, y: F32, *, heads: int) -> F32:
    """Head after head: that of x, then that of y."""
    both = [each.reshape(len(x), heads, -1) for each in (x, y)]
    return np.concatenate(both, axis=2).reshape(len(x), -1)


def columns_shape(x: Node, *, first: int, count: int) -> Shape:
    need(0 <= first < first + count <= x.width, f"columns {first} to {first + count} of {x.width}")
    return Shape(x.rows, count)


@op(columns_shape)
def slice_(x: F32, *, first: int, count: int) -> F32:
    """Columns first .. first + count - 1."""
    return x[:, first : first + count]
