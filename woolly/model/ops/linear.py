"""Products with a weight; `products.py` has the order of their sums."""

from __future__ import annotations

from woolly.model.operands import Node, Weight
from woolly.model.ops.kinds import Vector, Wide
from woolly.model.ops.numerics import F32, Quantized, f32
from woolly.model.ops.products import product
from woolly.model.ops.registry import OPS, op
from woolly.model.ops.shapes import Shape, fits, need
from woolly.model.ops.weights import Matrix


def linear_shape(x: Node, w: Weight, bias: Weight | None, residual: Node | None, *, scale: float) -> Shape:
    n = _product(x, w)
    need(bias is None or bias.shape == (n,), f"the bias of {w.name} has another length")
    need(residual is None or (residual.rows, residual.width) == (x.rows, n), f"the residual of {w.name} does not fit")
    return Shape(x.rows, n)


@op(linear_shape)
def linear(x: F32 | Quantized | Wide, w: Matrix, bias: Vector | None, residual: F32 | None, *, scale: float) -> F32:
    """x times w transposed; then + bias, * scale, residual + that, each if given and each rounded."""
    return finished(product(x, w), bias, residual, scale)


def finished(y: F32, bias: Vector | None, residual: F32 | None, scale: float) -> F32:
    if bias is not None:
        y = y + bias
    if scale != 1:
        y = y * f32(scale)
    return y if residual is None else residual + y


def gate_up_shape(x: Node, w: Weight, *, act: int) -> Shape:
    n = _product(x, w)
    need(w.alternate and len(w.parts) == 2 and n % 2 == 0, f"{w.name} is no pair of gate and up")
    return Shape(x.rows, n // 2)


GATES = ("silu", "gelu", "relu")  # the activations of a gate, by number


@op(gate_up_shape)
def gate_up(x: F32 | Quantized | Wide, w: Matrix, *, act: int) -> F32:
    """act(gate) * up, where the rows of w are gate's, then up's; act is a number of GATES."""
    return gated(product(x, w), act)


def gated(y: F32, act: int) -> F32:
    half = y.shape[1] // 2
    gate: F32 = OPS[GATES[act]](y[:, :half])
    return gate * y[:, half:]


def _product(x: Node, w: Weight) -> int:
    """Rows of w; x must be as wide as w has columns, and may be integers only for quantised w."""
    n, k = w.shape
    fits(x, w, k)
    return n
