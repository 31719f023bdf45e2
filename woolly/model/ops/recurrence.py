"""Ops that carry a state from row to row of a span, in one order however the text is cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from woolly.model.operands import Node, State, Weight
from woolly.model.ops.cache import Carry
from woolly.model.ops.kinds import Spans, Vector
from woolly.model.ops.numerics import F32, exp32, f32, fma
from woolly.model.ops.registry import op
from woolly.model.ops.shapes import Shape, need


def conv_shape(x: Node, w: Weight, b: Weight | None, state: State, spans: Any) -> Shape:
    need(x.rows == "rows", f"{x.name} has no positions")
    taps = w.shape[0] // x.width
    need(taps >= 2 and w.shape == (taps * x.width,), f"{w.name} has no taps for each column of {x.name}")
    need(b is None or b.shape == (x.width,), f"the bias of {w.name} has another length")
    need(state.shape == (taps - 1, x.width), f"{state.name} has shape {state.shape}, not {(taps - 1, x.width)}")
    return Shape(x.rows, x.width)


@op(conv_shape)
def conv(x: F32, w: Vector, b: Vector | None, state: Carry, spans: Spans) -> F32:
    """Each column over time: w of a column has a tap for each of the last rows, its own the last; then + b.

    The first product is rounded, the others are added by fma from the oldest row on. The rows before those of the step
    are carried; before the first position they are 0.
    """
    taps = w.reshape(x.shape[1], -1).T  # [taps, columns]
    out = np.empty_like(x)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        rows = np.concatenate([blob if first else np.zeros_like(blob), x[row : row + count]])
        y = rows[:count] * taps[0]
        for age in range(1, len(taps)):
            y = fma(rows[age : age + count], taps[age], y)
        out[row : row + count] = y if b is None else y + b
        blob[:] = rows[count:]
    return out


def scan_shape(
    q: Node, k: Node, v: Node, decay: Node, seen: Node | None, rate: Node | None, state: State, spans: Any,
    *, tiled: int,
) -> Shape:  # fmt: skip
    operands = [x for x in (q, k, v, decay, seen, rate) if x is not None]
    need(all(x.rows == "rows" for x in operands), f"an operand of the scan of {v.name} has no positions")
    need(len(state.shape) == 3, f"{state.name} is no matrix for each head")
    heads, keys, values = state.shape
    need(v.width == heads * values, f"{v.name} is {v.width} wide, not {heads} x {values}")
    groups = k.width // keys
    need(groups >= 1 and k.width == groups * keys and heads % groups == 0, f"{k.name} has no keys for {heads} heads")
    need(q.width == k.width, f"{q.name} and {k.name} differ in width")
    need(decay.width in (heads, heads * keys), f"{decay.name} is {decay.width} wide")
    need((seen is None) == (rate is None), f"{v.name}: what is seen is taken away at some rate")
    need(seen is None or seen.width == k.width, f"the keys seen by {v.name} have another width")
    need(rate is None or rate.width in (heads, heads * keys), f"the rates of {v.name} have another width")
    need(tiled in (0, 1), f"{v.name}: tiled is 0 or 1")
    return Shape(v.rows, v.width)


@op(scan_shape)
def scan(
    q: F32,
    k: F32,
    v: F32,
    decay: F32,
    seen: F32 | None,
    rate: F32 | None,
    state: Carry,
    spans: Spans,
    *,
    tiled: int,
) -> F32:
    """A matrix [keys, values] for each head, which decays, is updated and is read, position after position:

        s = s * decay                 one number for a head, or for each of its keys
        e = seen . s                  where `seen` is given
        s = fma(k, v, s)              then fma(-(seen * rate), e, s); a rate for a head, or for each of its keys
        y = q . s

    Sums over keys are by fma, ascending, from 0. A group of keys of q, k and seen may serve several heads: neighbours,
    or with tiled = 1 and n groups every nth. At the first position s is 0.
    """
    out = np.empty_like(v)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        heads, keys, _ = blob.shape
        s = blob if first else np.zeros_like(blob)
        for at in range(row, row + count):
            qs, ks = (keys_of_heads(x[at], heads, keys, tiled) for x in (q, k))
            s = s * decay[at].reshape(heads, -1, 1)
            new = v[at].reshape(heads, -1)
            if seen is None or rate is None:
                s = fma(ks[..., None], new[:, None], s)
            else:
                known = keys_of_heads(seen[at], heads, keys, tiled)
                e = _summed(known, s)
                s = fma(ks[..., None], new[:, None], s)
                s = fma(-(known * rate[at].reshape(heads, -1))[..., None], e[:, None], s)
            out[at] = _summed(qs, s).reshape(-1)
        blob[:] = s
    return out


def keys_of_heads(x: F32, heads: int, keys: int, tiled: int) -> F32:
    """A row of keys as each head has them, [heads, keys]."""
    each = x.reshape(-1, keys)
    of = np.arange(heads) % len(each) if tiled else np.arange(heads) // (heads // len(each))
    return each[of]


def _summed(x: F32, s: F32) -> F32:
    """[heads, values] of x [heads, keys] and s [heads, keys, values]."""
    y = np.zeros((s.shape[0], s.shape[2]), f32)
    for key in range(s.shape[1]):
        y = fma(x[:, key, None], s[:, key], y)
    return y


def selective_scan_shape(x: Node, dt: Node, b: Node, c: Node, a: Weight, state: State, spans: Any) -> Shape:
    need(all(each.rows == "rows" for each in (x, dt, b, c)), f"an operand of the scan of {x.name} has no positions")
    need(dt.width == x.width and b.width == c.width, f"operands of the scan of {x.name} differ in width")
    need(a.shape == (x.width * b.width,), f"{a.name} has {a.shape} values, not {x.width} x {b.width}")
    need(state.shape == (b.width, x.width), f"{state.name} has shape {state.shape}, not {(b.width, x.width)}")
    return Shape(x.rows, x.width)


@op(selective_scan_shape)
def selective_scan(x: F32, dt: F32, b: F32, c: F32, a: Vector, state: Carry, spans: Spans) -> F32:
    """A vector of states for each column, position after position: s = fma(dt * x, b, s * e^(dt * a)), y = c . s.

    b and c are the same for all columns, a has a row of states for each. The sum is by fma, ascending, from 0. At the
    first position s is 0.
    """
    rates = a.reshape(x.shape[1], -1).T  # [states, columns]
    out = np.empty_like(x)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        s = blob if first else np.zeros_like(blob)
        for at in range(row, row + count):
            s = fma(dt[at] * x[at], b[at][:, None], s * exp32(dt[at] * rates))
            y = np.zeros(x.shape[1], f32)
            for index, weight in enumerate(c[at]):
                y = fma(weight, s[index], y)
            out[at] = y
        blob[:] = s
    return out
