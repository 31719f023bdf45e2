"""EXACT: the ops of a graph as plain NumPy computes them, in whatever order is fastest.

Before any pass a graph is the truth of its file. `OPS` computes that truth to the bit and slowly; these functions give
it up to the rounding of float32, a hundred times faster: what an engine's own error is measured against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from woolly.model.ops import OPS
from woolly.model.ops.attention import Reach
from woolly.model.ops.cache import Cache, Carry
from woolly.model.ops.kinds import Ids, Order, Spans, Vector
from woolly.model.ops.numerics import F32, f32
from woolly.model.ops.recurrence import keys_of_heads
from woolly.model.ops.weights import Experts, Matrix

DECODED = 1 << 24  # values of a matrix that are decoded at a time: a large model is never whole in memory
SCORES = 1 << 24  # attention scores that are held at a time


def linear(x: F32, w: Matrix, bias: Vector | None, residual: F32 | None, *, scale: float) -> F32:
    """x times w transposed, then bias, factor and residual."""
    y = np.empty((len(x), w.rows), f32)
    step = max(1, DECODED // w.k)
    for first in range(0, w.rows, step):
        part = slice(first, first + step)
        np.matmul(x, w.format.decode(w.raw[part], w.k).T, out=y[:, part])
    if bias is not None:
        y += bias
    if scale != 1:
        y *= f32(scale)
    return y if residual is None else residual + y


def expert_linear(x: F32, w: Experts, ids: Ids | None) -> F32:
    """Each row, or its piece for the expert, times the matrices of its experts."""
    if ids is None:
        ids = np.tile(np.arange(w.count, dtype=np.int32), (len(x), 1))
    rows, count = ids.shape
    each = np.broadcast_to(x.reshape(rows, -1, w.k), (rows, count, w.k))
    out = np.empty((rows, count, w.rows), f32)
    for expert in np.unique(ids).tolist():
        chosen = ids == expert
        out[chosen] = linear(each[chosen], w.matrix(expert), None, None, scale=1.0)
    return out.reshape(rows, -1)


def rms_norm(x: F32, w: Vector | None, *, eps: float, heads: int) -> F32:
    """Each head of each row divided by its root mean square, times w."""
    y = x.reshape(len(x), heads, -1)
    r = 1 / np.sqrt(np.mean(np.square(y, dtype=np.float64), -1, keepdims=True) + eps)
    z: F32 = y * r.astype(f32)
    return (z if w is None else z * w.reshape(-1, y.shape[2])).reshape(x.shape)


def layer_norm(x: F32, w: Vector | None, b: Vector | None, *, eps: float, heads: int) -> F32:
    """rms_norm of x less the mean of each head, then + b."""
    y = x.reshape(len(x), heads, -1)
    y = y - np.mean(y, -1, keepdims=True, dtype=np.float64).astype(f32)
    z = rms_norm(y.reshape(x.shape), w, eps=eps, heads=heads)
    return z if b is None else z + b


def silu(x: F32) -> F32:
    """x / (1 + e^-x)."""
    with np.errstate(over="ignore"):  # e^-x may be infinite, and the quotient is then 0, as it must be
        y: F32 = x / (1 + np.exp(-x))
    return y


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
    """Attention of each span over its sequence's cache, a few rows of one head of the cache at a time."""
    share = heads // state.heads
    qs = (q * f32(scale)).reshape(len(q), state.heads, share, state.dim)
    out = np.empty((len(q), state.heads, share, state.value_dim), f32)
    reach = Reach(window, bool(chunked), bool(causal))
    slope = None if slopes is None else slopes.reshape(state.heads, share, -1)
    sink = None if sinks is None else sinks.reshape(state.heads, share)
    for (row, count, first, *_), lines in zip(spans.tolist(), state.lines, strict=True):
        step = max(1, SCORES // (share * (first + count)))
        for at in range(0, count, step):
            many = min(step, count - at)
            stop = first + at + many if causal else first + count
            positions = np.arange(first + at, first + at + many)
            place = np.arange(stop)
            hidden = (place < reach.begins(positions)[:, None]) | (
                place >= reach.ends(positions, stop)[:, None]
            )  # [rows, positions]
            for head in range(state.heads):
                keys, values = lines.keys[:stop, head], lines.values[:stop, head]
                s = qs[row + at : row + at + many, head] @ keys.T  # [rows, share, positions]
                if cap:
                    s = np.tanh(s / f32(cap)) * f32(cap)
                if slope is not None:
                    s += _gains(slope[head], place - positions[:, None]).transpose(1, 0, 2)
                s = np.where(hidden[:, None], f32(-np.inf), s)
                most = s.max(-1, keepdims=True)
                p = np.exp(s - most)
                total = p.sum(-1, keepdims=True)
                if sink is not None:
                    total = total + np.exp(sink[head][:, None] - most)
                out[row + at : row + at + many, head] = (p / total) @ values
    return out.reshape(len(q), -1)


def _gains(slope: F32, distance: NDArray[np.int64]) -> F32:
    """What scores gain by distance [rows, positions]: of slopes [share, 1], or of a number for each distance."""
    n = slope.shape[1] // 2
    y: F32 = slope[:, np.clip(distance, -n, n) + n] if n else slope[..., None] * -np.abs(distance).astype(f32)
    return y


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
    """Position after position, all heads at once."""
    out = np.empty_like(v)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        heads, keys, _ = blob.shape
        if first == 0:
            blob[:] = 0
        for at in range(row, row + count):
            qs, ks = (keys_of_heads(x[at], heads, keys, tiled) for x in (q, k))
            blob *= decay[at].reshape(heads, -1, 1)
            update = ks[..., None] * v[at].reshape(heads, 1, -1)
            if seen is not None and rate is not None:
                known = keys_of_heads(seen[at], heads, keys, tiled)
                read = np.matmul(known[:, None], blob)
                update -= (known * rate[at].reshape(heads, -1))[..., None] * read
            blob += update
            out[at] = np.matmul(qs[:, None], blob).reshape(-1)
    return out


def selective_scan(x: F32, dt: F32, b: F32, c: F32, a: Vector, state: Carry, spans: Spans) -> F32:
    """Position after position, all columns at once."""
    rates = a.reshape(x.shape[1], -1).T
    out = np.empty_like(x)
    for (row, count, first, *_), blob in zip(spans.tolist(), state.blobs, strict=True):
        if first == 0:
            blob[:] = 0
        for at in range(row, row + count):
            blob *= np.exp(dt[at] * rates)
            blob += (dt[at] * x[at]) * b[at][:, None]
            out[at] = c[at] @ blob
    return out


EXACT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **OPS,
        "linear": linear,
        "expert_linear": expert_linear,
        "rms_norm": rms_norm,
        "layer_norm": layer_norm,
        "silu": silu,
        "attend": attend,
        "scan": scan,
        "selective_scan": selective_scan,
    }
)
