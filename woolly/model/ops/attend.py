"""The cache of keys and values, and attention over it; `attention.py` has the order of its sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from woolly.model.operands import Node, State, Weight
from woolly.model.ops.attention import Reach, attention
from woolly.model.ops.cache import ROUND, Cache
from woolly.model.ops.kinds import Order, Spans, Vector
from woolly.model.ops.numerics import F32, f32
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, need


def store_shape(k: Node, v: Node | None, state: State, spans: Any) -> Shape:
    widths = [state.heads * state.dim, *([] if state.latent else [state.heads * state.value_dim])]
    stored = [x.width for x in (k, v) if x is not None]
    need(all(x is None or x.rows == "rows" for x in (k, v)), f"what {state.name} is to keep has no positions")
    need(stored == widths, f"{state.name} is {widths} wide; {stored} are stored")
    need(not state.latent or state.value_dim <= state.dim, f"{state.name} has fewer columns than values")
    return Shape("rows", 0)


@op(store_shape)
def store(k: F32, v: F32 | None, state: Cache, spans: Spans) -> Order:
    """Write the keys and values of this step into the cache at their positions, rounded to the cache's type; without
    an operand v, values are the first columns of the rounded keys."""
    rounded = ROUND[state.dtype]
    for (row, count, first, *_), lines in zip(spans.tolist(), state.lines, strict=True):
        rows = slice(row, row + count)
        keys = rounded(k[rows].reshape(count, state.heads, -1))
        values = keys[..., : state.value_dim] if v is None else rounded(v[rows].reshape(count, state.heads, -1))
        lines.write(first, keys, values)


def attend_shape(
    q: Node, state: State, spans: Any, after: Node, sinks: Weight | None, slopes: Weight | None, **attrs: Any
) -> Shape:
    need(after.op == "store" and after.inputs[2] == state.name, f"{after.name} does not store into {state.name}")
    return _attended(q, state, sinks, slopes, **attrs)


@op(attend_shape)
def attend(
    q: F32,
    state: Cache,
    spans: Spans,
    after: Order,
    sinks: Vector | None,
    slopes: Vector | None,
    *,
    heads: int,
    scale: float,
    window: int,
    chunked: int,
    causal: int,
    cap: float,
) -> F32:
    """Attention of each span over its sequence's cache; head h reads the cache's head h / (heads / cache heads).

    A row sees the positions up to its own; with a window the last `window` of them, or with chunked = 1 those since the
    last multiple of it; with causal = 0 all of its span, or those at most half a window away. Queries are scaled first;
    scores are capped (soft_cap, 0: not), then lowered by the head's slope times the distance, or raised by the head's
    number for the distance where slopes has 2n + 1 for each: distances -n .. n, larger ones count as n. A head's sink
    is one more score, whose value vector is zero. The order of all sums is attention.py's.
    """
    qs = (q * f32(scale)).reshape(len(q), heads, state.dim)
    out = np.empty((len(q), heads, state.value_dim), f32)
    reach = Reach(window, bool(chunked), bool(causal))
    for (row, count, first, *_), lines in zip(spans.tolist(), state.lines, strict=True):
        rows = slice(row, row + count)
        out[rows] = attention(qs[rows], lines.keys, lines.values, first, reach, cap=cap, sinks=sinks, slopes=slopes)
    return out.reshape(len(q), -1)


def store_attend_shape(
    q: Node, state: State, spans: Any, k: Node, v: Node | None, sinks: Weight | None, slopes: Weight | None,
    **attrs: Any,
) -> Shape:  # fmt: skip
    store_shape(k, v, state, spans)
    need(attrs["causal"] == 1, f"{q.name} attends to positions that another row stores")
    return _attended(q, state, sinks, slopes, **attrs)


@op(store_attend_shape)
def store_attend(
    q: F32,
    state: Cache,
    spans: Spans,
    k: F32,
    v: F32 | None,
    sinks: Vector | None,
    slopes: Vector | None,
    *,
    heads: int,
    scale: float,
    window: int,
    chunked: int,
    causal: int,
    cap: float,
) -> F32:
    """store, then attend."""
    store(k, v, state, spans)
    return attend(
        q, state, spans, None, sinks, slopes,
        heads=heads, scale=scale, window=window, chunked=chunked, causal=causal, cap=cap,
    )  # fmt: skip


def _attended(
    q: Node, state: State, sinks: Weight | None, slopes: Weight | None,
    *, heads: int, scale: float, window: int, chunked: int, causal: int, cap: float,
) -> Shape:  # fmt: skip
    need(q.rows == "rows", f"{q.name} has no positions")
    needed = window if causal else 0  # without causality all that a row sees is in its step
    need(state.window == needed, f"{q.name} needs {needed} positions, {state.name} keeps {state.window}")
    need(causal in (0, 1) and window >= 0, f"{q.name}: a window of {window}")
    need(chunked in (0, 1) and (chunked == 0 or (causal == 1 and window > 0)), f"{q.name}: chunks have no length")
    need(cap >= 0, f"{q.name}: scores are capped at {cap}")
    need(heads % state.heads == 0, f"{state.heads} heads of {state.name} do not divide {heads}")
    need(q.width == heads * state.dim, f"{q.name} is {q.width} wide, not {heads} x {state.dim}")
    need(sinks is None or sinks.shape == (heads,), f"{q.name}: sinks are one for each head")
    odd = slopes is None or (slopes.shape[0] % heads == 0 and slopes.shape[0] // heads % 2 == 1)
    need(odd, f"{q.name}: slopes are one for each head, or one for each distance both ways")
    return Shape(q.rows, heads * state.value_dim)
