"""The shape of an op's result, and the rules that ops of several groups share.

A rule takes what its op takes, but descriptions (a Node, Weight, State or table) in place of values. It returns the
Shape of the result or raises ValueError: a graph that breaks a rule is a bug in Woolly, since sizes in a file are
checked before they get into a graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from woolly.gguf.tensor_types import FORMATS
from woolly.model.operands import Count, Dtype, Node, Weight
from woolly.model.ops.numerics import GROUP


class Shape(NamedTuple):
    """The shape of an op's result."""

    rows: Count
    width: int
    dtype: Dtype = "f32"


def need(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def like(x: Node, *_: Any, **__: Any) -> Shape:
    return Shape(x.rows, x.width)


def pair(x: Node, y: Node, **_: Any) -> Shape:
    need((x.rows, x.width) == (y.rows, y.width), f"{x.name} and {y.name} differ in shape")
    return Shape(x.rows, x.width)


def vector(x: Node, b: Weight) -> Shape:
    need(b.shape == (x.width,), f"{b.name} has shape {b.shape}, {x.name} is {x.width} wide")
    return Shape(x.rows, x.width)


def fits(x: Node, w: Weight, k: int) -> None:
    need(k == x.width, f"{w.name} has {k} columns, {x.name} is {x.width} wide")
    need(x.dtype == "f32" or not FORMATS[w.format].is_float, f"{w.name} is {w.format}, which takes float32 inputs")


def record(shape: Shape, bits: int) -> Shape:
    need(shape.width % GROUP == 0, f"only a multiple of {GROUP} columns can be quantised, not {shape.width}")
    need(bits in (8, 16), f"records have 8 or 16 bits, not {bits}")
    return shape._replace(dtype="q8" if bits == 8 else "q16")
