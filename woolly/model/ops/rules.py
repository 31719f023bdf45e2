"""The shapes ops give, and the sizes they ask for: one rule per form of op.

A rule takes what its op takes, but descriptions (a Node, Weight, State or table) in place of values. It returns the
Shape of the result or raises ValueError: a graph that breaks a rule is a bug in Woolly, since sizes in a file are
checked before they get into a graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from woolly.gguf.tensor_types import FORMATS
from woolly.model.operands import Count, Dtype, Node, State, Weight
from woolly.model.ops.numerics import GROUP
from woolly.model.tables import Table


class Shape(NamedTuple):
    """The shape of an op's result."""

    rows: Count
    width: int
    dtype: Dtype = "f32"


def _need(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def like(x: Node, *_: Any, **__: Any) -> Shape:
    return Shape(x.rows, x.width)


def pair(x: Node, y: Node, **_: Any) -> Shape:
    _need((x.rows, x.width) == (y.rows, y.width), f"{x.name} and {y.name} differ in shape")
    return Shape(x.rows, x.width)


def vector(x: Node, b: Weight) -> Shape:
    _need(b.shape == (x.width,), f"{b.name} has shape {b.shape}, {x.name} is {x.width} wide")
    return Shape(x.rows, x.width)


def norm(x: Node, w: Weight | None, *, eps: float, heads: int = 1) -> Shape:
    _need(heads >= 1 and x.width % heads == 0, f"{heads} heads do not divide the width {x.width} of {x.name}")
    fits = w is None or w.shape in ((x.width // heads,), (x.width,))
    _need(fits, f"the weight of the norm of {x.name}, {x.width} wide, has another length")
    return Shape(x.rows, x.width)


def layer_norm(x: Node, w: Weight | None, b: Weight | None, *, eps: float, heads: int) -> Shape:
    _need(b is None or b.shape == (x.width,), f"the bias of the norm of {x.name} has another length")
    return norm(x, w, eps=eps, heads=heads)


def add_scaled(x: Node, y: Node, by: Node) -> Shape:
    _need((by.rows, by.width) == (x.rows, 1), f"{by.name} has no number for each row of {x.name}")
    return pair(x, y)


def scale_heads(x: Node, by: Node | Weight) -> Shape:
    heads, rows = (by.width, by.rows) if hasattr(by, "width") else (by.shape[0], x.rows)
    _need(x.rows == rows and x.width % heads == 0, f"{by.name} has no number for each head of {x.name}")
    return Shape(x.rows, x.width)


def head_sums(x: Node, *, heads: int) -> Shape:
    _need(heads >= 1 and x.width % heads == 0, f"{heads} heads do not divide the width {x.width} of {x.name}")
    return Shape(x.rows, heads)


def join(x: Node, y: Node, *, heads: int) -> Shape:
    _need(x.rows == y.rows, f"{x.name} and {y.name} differ in rows")
    _need(heads >= 1 and x.width % heads == y.width % heads == 0, f"{heads} heads of {x.name} and {y.name}")
    return Shape(x.rows, x.width + y.width)


def rope(x: Node, positions: Any, table: Table, *, heads: int, rot: int, neox: int) -> Shape:
    _need(x.rows == "rows", f"{x.name} has no positions")
    _need(heads >= 1 and x.width % heads == 0, f"{heads} heads do not divide the width {x.width} of {x.name}")
    _need(rot % 2 == 0 and 2 <= rot <= x.width // heads, f"{rot} rotated of {x.width // heads}")
    _need(table.width == rot and neox in (0, 1), f"the table is {table.width} wide for {rot} rotated")
    return Shape(x.rows, x.width)


def scale_by_position(x: Node, positions: Any, table: Table) -> Shape:
    _need(x.rows == "rows" and table.width == 1, f"the table of {x.name} is {table.width} wide, not 1")
    return Shape(x.rows, x.width)


def columns(x: Node, *, first: int, count: int) -> Shape:
    _need(0 <= first < first + count <= x.width, f"columns {first} to {first + count} of {x.width}")
    return Shape(x.rows, count)


def store(k: Node, v: Node | None, state: State, spans: Any) -> Shape:
    widths = [state.heads * state.dim, *([] if state.latent else [state.heads * state.value_dim])]
    stored = [x.width for x in (k, v) if x is not None]
    _need(all(x is None or x.rows == "rows" for x in (k, v)), f"what {state.name} is to keep has no positions")
    _need(stored == widths, f"{state.name} is {widths} wide; {stored} are stored")
    _need(not state.latent or state.value_dim <= state.dim, f"{state.name} has fewer columns than values")
    return Shape("rows", 0)


def attend(
    q: Node, state: State, spans: Any, after: Node, sinks: Weight | None, slopes: Weight | None, **attrs: Any
) -> Shape:
    _need(after.op == "store" and after.inputs[2] == state.name, f"{after.name} does not store into {state.name}")
    return _attended(q, state, sinks, slopes, **attrs)


def store_attend(
    q: Node, state: State, spans: Any, k: Node, v: Node | None, sinks: Weight | None, slopes: Weight | None,
    **attrs: Any,
) -> Shape:  # fmt: skip
    store(k, v, state, spans)
    _need(attrs["causal"] == 1, f"{q.name} attends to positions that another row stores")
    return _attended(q, state, sinks, slopes, **attrs)


def _attended(
    q: Node, state: State, sinks: Weight | None, slopes: Weight | None,
    *, heads: int, scale: float, window: int, chunked: int, causal: int, cap: float,
) -> Shape:  # fmt: skip
    _need(q.rows == "rows", f"{q.name} has no positions")
    needed = window if causal else 0  # without causality all that a row sees is in its step
    _need(state.window == needed, f"{q.name} needs {needed} positions, {state.name} keeps {state.window}")
    _need(causal in (0, 1) and window >= 0, f"{q.name}: a window of {window}")
    _need(chunked in (0, 1) and (chunked == 0 or (causal == 1 and window > 0)), f"{q.name}: chunks have no length")
    _need(cap >= 0, f"{q.name}: scores are capped at {cap}")
    _need(heads % state.heads == 0, f"{state.heads} heads of {state.name} do not divide {heads}")
    _need(q.width == heads * state.dim, f"{q.name} is {q.width} wide, not {heads} x {state.dim}")
    _need(sinks is None or sinks.shape == (heads,), f"{q.name}: sinks are one for each head")
    odd = slopes is None or (slopes.shape[0] % heads == 0 and slopes.shape[0] // heads % 2 == 1)
    _need(odd, f"{q.name}: slopes are one for each head, or one for each distance both ways")
    return Shape(q.rows, heads * state.value_dim)


def conv(x: Node, w: Weight, b: Weight | None, state: State, spans: Any) -> Shape:
    _need(x.rows == "rows", f"{x.name} has no positions")
    taps = w.shape[0] // x.width
    _need(taps >= 2 and w.shape == (taps * x.width,), f"{w.name} has no taps for each column of {x.name}")
    _need(b is None or b.shape == (x.width,), f"the bias of {w.name} has another length")
    _need(state.shape == (taps - 1, x.width), f"{state.name} has shape {state.shape}, not {(taps - 1, x.width)}")
    return Shape(x.rows, x.width)


def scan(
    q: Node, k: Node, v: Node, decay: Node, seen: Node | None, rate: Node | None, state: State, spans: Any,
    *, tiled: int,
) -> Shape:  # fmt: skip
    operands = [x for x in (q, k, v, decay, seen, rate) if x is not None]
    _need(all(x.rows == "rows" for x in operands), f"an operand of the scan of {v.name} has no positions")
    _need(len(state.shape) == 3, f"{state.name} is no matrix for each head")
    heads, keys, values = state.shape
    _need(v.width == heads * values, f"{v.name} is {v.width} wide, not {heads} x {values}")
    groups = k.width // keys
    _need(groups >= 1 and k.width == groups * keys and heads % groups == 0, f"{k.name} has no keys for {heads} heads")
    _need(q.width == k.width, f"{q.name} and {k.name} differ in width")
    _need(decay.width in (heads, heads * keys), f"{decay.name} is {decay.width} wide")
    _need((seen is None) == (rate is None), f"{v.name}: what is seen is taken away at some rate")
    _need(seen is None or seen.width == k.width, f"the keys seen by {v.name} have another width")
    _need(rate is None or rate.width in (heads, heads * keys), f"the rates of {v.name} have another width")
    _need(tiled in (0, 1), f"{v.name}: tiled is 0 or 1")
    return Shape(v.rows, v.width)


def selective_scan(x: Node, dt: Node, b: Node, c: Node, a: Weight, state: State, spans: Any) -> Shape:
    _need(all(each.rows == "rows" for each in (x, dt, b, c)), f"an operand of the scan of {x.name} has no positions")
    _need(dt.width == x.width and b.width == c.width, f"operands of the scan of {x.name} differ in width")
    _need(a.shape == (x.width * b.width,), f"{a.name} has {a.shape} values, not {x.width} x {b.width}")
    _need(state.shape == (b.width, x.width), f"{state.name} has shape {state.shape}, not {(b.width, x.width)}")
    return Shape(x.rows, x.width)


def pool(x: Node, spans: Any) -> Shape:
    _need(x.rows == "rows", f"{x.name} is pooled already")
    return Shape("spans", x.width)


def take(x: Node, want: Any) -> Shape:
    _need(x.rows == "rows", f"{x.name} is taken already")
    return Shape("wants", x.width)


def embed(tokens: Any, w: Weight) -> Shape:
    return Shape("rows", w.shape[1])


def _product(x: Node, w: Weight) -> int:
    """Rows of w; x must be as wide as w has columns, and may be integers only for quantised w."""
    n, k = w.shape
    _fits(x, w, k)
    return n


def _fits(x: Node, w: Weight, k: int) -> None:
    _need(k == x.width, f"{w.name} has {k} columns, {x.name} is {x.width} wide")
    _need(x.dtype == "f32" or not FORMATS[w.format].is_float, f"{w.name} is {w.format}, which takes float32 inputs")


def linear(x: Node, w: Weight, bias: Weight | None, residual: Node | None, *, scale: float) -> Shape:
    n = _product(x, w)
    _need(bias is None or bias.shape == (n,), f"the bias of {w.name} has another length")
    _need(residual is None or (residual.rows, residual.width) == (x.rows, n), f"the residual of {w.name} does not fit")
    return Shape(x.rows, n)


def delta_down(x: Node, a: Weight, owners: Weight, spans: Any, scales: Any, want: Any) -> Shape:
    _need(a.shape[1] == x.width, f"{a.name} has {a.shape[1]} columns, {x.name} is {x.width} wide")
    return _owned(x, owners, a.shape[0], want, a.shape[0])


def delta_up(low: Node, b: Weight, owners: Weight, spans: Any, scales: Any, want: Any) -> Shape:
    _need(b.shape[1] == low.width, f"{b.name} has {b.shape[1]} columns, {low.name} is {low.width} wide")
    return _owned(low, owners, low.width, want, b.shape[0])


def _owned(x: Node, owners: Weight, ranks: int, want: Any, width: int) -> Shape:
    _need(ranks % 16 == 0 and owners.shape == (3 * (ranks // 16),), f"{owners.name} has no owner for each 16 ranks")
    _need(x.rows == ("rows" if want is None else "wants"), f"{x.name} has rows of other spans")
    return Shape(x.rows, width)


def adapted_linear(
    x: Node, w: Weight, bias: Weight | None, residual: Node | None, delta: Node, *, scale: float
) -> Shape:
    shape = linear(x, w, bias, residual, scale=scale)
    _delta(delta, x, w)
    return shape


def _delta(delta: Node, x: Node, w: Weight) -> None:
    _need((delta.rows, delta.width) == (x.rows, w.shape[0]), f"{delta.name} does not fit {w.name}")


def adapted_gate_up(x: Node, w: Weight, delta: Node, *, act: int) -> Shape:
    _delta(delta, x, w)
    return gate_up(x, w, act=act)


def adapted_gate_up_quantize(x: Node, w: Weight, delta: Node, *, act: int, bits: int) -> Shape:
    _delta(delta, x, w)
    return gate_up_quantize(x, w, act=act, bits=bits)


def top_experts(scores: Node, *, count: int, groups: int, groups_used: int) -> Shape:
    _need(groups >= 1 and scores.width % groups == 0, f"{groups} groups of {scores.width} experts")
    each = scores.width // groups
    _need(groups == 1 or each >= 2, f"a group has {each} experts, its score is that of two")
    _need(1 <= groups_used <= groups, f"{groups_used} of {groups} groups")
    _need(1 <= count <= groups_used * each, f"{count} of {groups_used * each} experts")
    return Shape(scores.rows, count, "ids")


def take_scores(scores: Node, ids: Node) -> Shape:
    _need(scores.rows == ids.rows, f"{scores.name} and {ids.name} differ in rows")
    return Shape(scores.rows, ids.width)


def expert_linear(x: Node, w: Weight, ids: Node | None) -> Shape:
    if ids is None:
        experts, n, k = w.shape
        _fits(x, w, experts * k)
        return Shape(x.rows, experts * n)
    return Shape(x.rows, ids.width * _expert_product(x, w, ids))


def _expert_product(x: Node, w: Weight, ids: Node) -> int:
    """Rows of each matrix of w; x has a row for all experts of ids, or a piece for each."""
    _, n, k = w.shape
    _need(x.rows == ids.rows, f"{x.name} and {ids.name} differ in rows")
    _fits(x, w, k if x.width == k else ids.width * k)
    return n


def expert_bias(x: Node, b: Weight, ids: Node) -> Shape:
    n = _piece(x, ids.width)
    _need(x.rows == ids.rows, f"{x.name} and {ids.name} differ in rows")
    _need(b.shape[0] % n == 0, f"{b.name} has {b.shape[0]} values, which is no multiple of {n}")
    return Shape(x.rows, x.width)


def expert_scale(x: Node, s: Weight, ids: Node) -> Shape:
    _piece(x, ids.width)
    _need(x.rows == ids.rows, f"{x.name} and {ids.name} differ in rows")
    return Shape(x.rows, x.width)


def expert_inputs(x: Node, weights: Node) -> Shape:
    _need(x.rows == weights.rows, f"{x.name} and {weights.name} differ in rows")
    return Shape(x.rows, weights.width * x.width)


def expert_sum(x: Node, weights: Node | None, *, count: int) -> Shape:
    _need(
        weights is None or (weights.rows, weights.width) == (x.rows, count), f"{x.name} has another number of weights"
    )
    return Shape(x.rows, _piece(x, count))


def _piece(x: Node, count: int) -> int:
    """The width of each of `count` pieces of a row."""
    _need(count >= 1 and x.width % count == 0, f"{x.name} is {x.width} wide, which is no multiple of {count}")
    return x.width // count


def quantize(x: Node, *, bits: int) -> Shape:
    return _record(Shape(x.rows, x.width), bits)


def _record(shape: Shape, bits: int) -> Shape:
    _need(shape.width % GROUP == 0, f"only a multiple of {GROUP} columns can be quantised, not {shape.width}")
    _need(bits in (8, 16), f"records have 8 or 16 bits, not {bits}")
    return shape._replace(dtype="q8" if bits == 8 else "q16")


def norm_quantize(x: Node, w: Weight, *, eps: float, bits: int) -> Shape:
    return _record(norm(x, w, eps=eps), bits)


def gate_up(x: Node, w: Weight, *, act: int) -> Shape:
    n = _product(x, w)
    _need(w.alternate and len(w.parts) == 2 and n % 2 == 0, f"{w.name} is no pair of gate and up")
    return Shape(x.rows, n // 2)


def gate_up_quantize(x: Node, w: Weight, *, act: int, bits: int) -> Shape:
    return _record(gate_up(x, w, act=act), bits)


def expert_gate_up(x: Node, w: Weight, ids: Node, *, act: int) -> Shape:
    n = _expert_product(x, w, ids)
    _need(w.alternate and len(w.parts) == 2 and n % 2 == 0, f"{w.name} is no pair of gate and up")
    return Shape(x.rows, ids.width * n // 2)


def expert_gate_up_quantize(x: Node, w: Weight, ids: Node, *, act: int, bits: int) -> Shape:
    _need(w.shape[1] % (2 * GROUP) == 0, f"{w.name} has rows of which no whole groups can be quantised")
    return _record(expert_gate_up(x, w, ids, act=act), bits)
