"""Integers in place of floats, alone and as the last part of what gives the floats."""

from __future__ import annotations

from woolly.model.operands import Node, Weight
from woolly.model.ops.experts import expert_gate_up, expert_gate_up_shape
from woolly.model.ops.kinds import Ids, Vector, Wide
from woolly.model.ops.linear import gate_up, gate_up_shape
from woolly.model.ops.lora import adapted_gate_up, adapted_gate_up_shape
from woolly.model.ops.norms import norm_shape, rms_norm
from woolly.model.ops.numerics import F32, GROUP, Quantized, quantize32
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, need, record
from woolly.model.ops.weights import Experts, Matrix


def quantize_shape(x: Node, *, bits: int) -> Shape:
    return record(Shape(x.rows, x.width), bits)


@op(quantize_shape)
def quantize(x: F32, *, bits: int) -> Quantized:
    """Integers of 8 or 16 bits with one scale per 32 columns."""
    return quantize32(x, bits)


def norm_quantize_shape(x: Node, w: Weight, *, eps: float, bits: int) -> Shape:
    return record(norm_shape(x, w, eps=eps), bits)


@op(norm_quantize_shape)
def norm_quantize(x: F32, w: Vector, *, eps: float, bits: int) -> Quantized:
    """rms_norm, then quantize."""
    return quantize32(rms_norm(x, w, eps=eps, heads=1), bits)


def gate_up_quantize_shape(x: Node, w: Weight, *, act: int, bits: int) -> Shape:
    return record(gate_up_shape(x, w, act=act), bits)


@op(gate_up_quantize_shape)
def gate_up_quantize(x: F32 | Quantized | Wide, w: Matrix, *, act: int, bits: int) -> Quantized:
    """gate_up, then quantize."""
    return quantize32(gate_up(x, w, act=act), bits)


def expert_gate_up_quantize_shape(x: Node, w: Weight, ids: Node, *, act: int, bits: int) -> Shape:
    need(w.shape[1] % (2 * GROUP) == 0, f"{w.name} has rows of which no whole groups can be quantised")
    return record(expert_gate_up_shape(x, w, ids, act=act), bits)


@op(expert_gate_up_quantize_shape)
def expert_gate_up_quantize(x: F32 | Quantized | Wide, w: Experts, ids: Ids, *, act: int, bits: int) -> Quantized:
    """expert_gate_up, then quantize."""
    return quantize32(expert_gate_up(x, w, ids, act=act), bits)


def adapted_gate_up_quantize_shape(x: Node, w: Weight, delta: Node, *, act: int, bits: int) -> Shape:
    return record(adapted_gate_up_shape(x, w, delta, act=act), bits)


@op(adapted_gate_up_quantize_shape)
def adapted_gate_up_quantize(x: F32 | Quantized | Wide, w: Matrix, delta: F32, *, act: int, bits: int) -> Quantized:
    """adapted_gate_up, then quantize."""
    return quantize32(adapted_gate_up(x, w, delta, act=act), bits)
