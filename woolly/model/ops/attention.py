"""Attention of one span, over the cache of its sequence.

Positions are cut into parts at absolute multiples of 256. Each part has its own maximum m, sum l and output o, computed
from nothing, and parts are merged in ascending order by one formula. A row sees a range of positions, which ends with
its own where attention is causal, and nothing of the others, so neither chunks nor batches change a bit:

    s_j = fma over d ascending of q_d * k_jd          m = max s_j        p_j = exp32(s_j - m)
    l   = 16 lane sums of p_j (lane j mod 16), then tree16
    o_d = fma over j ascending of p_j * v_jd
    merged: M = max(m1, m2), a = exp32(m1 - M), b = exp32(m2 - M), o = fma(o2, b, o1 * a), l = fma(l2, b, l1 * a)

A part of which a row sees nothing is left out of its merge. Scores may be capped, s = tanh32(s / cap) * cap, and then
lowered by the distance, s = fma(slope, -|j - own position|, s), or raised by the head's number for that distance. A
sink is merged last, as a part with m = sink, l = 1, o = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from woolly.model.ops.numerics import F32, exp32, f32, fma, max32, tanh32, tree16

PART = 256
_TILE_ELEMENTS = 1 << 18

Positions = NDArray[np.int64]


class Reach(NamedTuple):
    """Which positions a row sees: those up to its own; with a window the last `window` of them, or if chunked those
    since the last multiple of the window. If not causal: all, or with a window those at most half a window away."""

    window: int = 0
    chunked: bool = False
    causal: bool = True

    def begins(self, positions: Positions) -> Positions:
        if not self.window:
            return np.zeros_like(positions)
        if not self.causal:
            return np.maximum(positions - self.window // 2, 0)
        return positions // self.window * self.window if self.chunked else np.maximum(positions + 1 - self.window, 0)

    def ends(self, positions: Positions, last: int) -> Positions:
        """Of rows whose span ends before position `last`."""
        if self.causal:
            return positions + 1
        return np.minimum(positions + self.window // 2 + 1, last) if self.window else np.full_like(positions, last)


ALL = Reach()


def attention(
    q: F32,
    keys: F32,
    values: F32,
    first: int,
    reach: Reach = ALL,
    *,
    cap: float = 0.0,
    sinks: F32 | None = None,
    slopes: F32 | None = None,
) -> F32:
    """q [rows, heads, dim], already scaled, of positions first, first + 1, ...; keys [positions, kv heads, dim] and
    values [positions, kv heads, value dim] up to the last of them at least. slopes: [heads], or for each head what its
    scores gain at distances -n .. n; larger distances count as n. Gives [rows, heads, value dim].
    """
    rows, heads, _ = q.shape
    positions = np.arange(first, first + rows)
    ends = reach.ends(positions, first + rows)
    begins = reach.begins(positions)
    out = np.empty((rows, heads, values.shape[2]), f32)
    step = max(1, _TILE_ELEMENTS // (heads * PART))
    for row in range(0, rows, step):
        some = slice(row, row + step)
        out[some] = _rows(q[some], keys, values, positions[some], begins[some], ends[some], cap, sinks, slopes)
    return out


def _rows(
    q: F32,
    keys: F32,
    values: F32,
    positions_of_rows: Positions,
    begins: Positions,
    ends: Positions,
    cap: float,
    sinks: F32 | None,
    slopes: F32 | None,
) -> F32:
    """As `attention`, for rows few enough that a part's scores fit a cache; each sees positions [begin, end).

    Columns are the pairs (row, head of the group), rows ascending.
    """
    rows, heads, dim = q.shape
    kv_heads = keys.shape[1]
    share = heads // kv_heads
    columns = rows * share
    qs = q.reshape(rows, kv_heads, share, dim).transpose(1, 0, 2, 3).reshape(kv_heads, columns, dim).astype(np.float64)
    position, begin, end = (np.repeat(each, share) for each in (positions_of_rows, begins, ends))
    slope = None if slopes is None else np.tile(slopes.reshape(kv_heads, share, -1), (1, rows, 1))
    sink = None if sinks is None else np.tile(sinks.reshape(kv_heads, share), rows)

    m: F32 = np.full((kv_heads, columns), -np.inf, f32)
    l: F32 = np.zeros((kv_heads, columns), f32)
    o: F32 = np.zeros((kv_heads, values.shape[2], columns), f32)
    for start in range(int(begin.min()) // PART * PART, int(end.max()), PART):
        stop = min(start + PART, int(end.max()))
        sees = np.flatnonzero((begin < stop) & (end > start))
        s = _scores(qs[:, sees], keys[start:stop])
        if cap:
            s = tanh32(s / f32(cap)) * f32(cap)
        if slope is not None:
            s = _by_distance(s, slope[:, sees], np.arange(start, stop) - position[sees][:, None])
        summed = _part(s, values[start:stop], begin[sees] - start, end[sees] - start)
        fresh = begin[sees] >= start  # the first part that a column sees is taken as it is
        for some, take in ((sees[fresh], fresh), (sees[~fresh], ~fresh)):
            pm, pl, po = (part[..., take] for part in summed)
            if take is fresh:
                m[:, some], l[:, some], o[:, :, some] = pm, pl, po
                continue
            m1, l1, o1 = m[:, some], l[:, some], o[:, :, some]
            both = max32(m1, pm)
            a, b = exp32(m1 - both), exp32(pm - both)
            o[:, :, some] = fma(po, b[:, None], o1 * a[:, None])
            l[:, some] = fma(pl, b, l1 * a)
            m[:, some] = both
    if sink is not None:
        both = max32(m, sink)
        a = exp32(m - both)
        o, l = o * a[:, None], fma(f32(1), exp32(sink - both), l * a)
    y: F32 = (o / l[:, None]).reshape(kv_heads, -1, rows, share)
    return y.transpose(2, 0, 3, 1).reshape(rows, heads, -1)


def _scores(q: NDArray[np.float64], keys: F32) -> F32:
    """[kv heads, columns, positions] of q [kv heads, columns, dim]."""
    ks = keys.transpose(1, 2, 0).astype(np.float64)  # [kv heads, dim, positions]
    s = np.zeros((*q.shape[:2], len(keys)), f32)
    for d in range(q.shape[2]):
        s = fma(q[:, :, d, None], ks[:, d, None, :], s)
    return s


def _by_distance(s: F32, slope: F32, distance: Positions) -> F32:
    """Scores [kv heads, columns, positions] with slopes [kv heads, columns, 1], or a number for each distance."""
    n = slope.shape[2] // 2
    if n == 0:
        return fma(slope, -np.abs(distance).astype(f32), s)
    gain = np.take_along_axis(slope, np.broadcast_to(np.clip(distance, -n, n) + n, s.shape), 2)
    y: F32 = s + gain
    return y


def _part(s: F32, values: F32, begin: Positions, end: Positions) -> tuple[F32, F32, F32]:
    """(m, l, o) of the scores of one part; a column sees positions [begin, end), counted from the part's start."""
    kv_heads, columns, count = s.shape
    place = np.arange(count)
    hidden = (place < begin[:, None]) | (place >= end[:, None])  # [columns, positions]
    m = np.where(hidden, f32(-np.inf), s).max(-1)
    p = np.where(hidden, f32(0), exp32(s - m[..., None]))

    lanes = np.zeros((kv_heads, columns, 16), f32)
    for j in range(0, count, 16):
        some = p[..., j : j + 16]
        lanes[..., : some.shape[-1]] += some
    l = tree16(lanes)[..., 0]

    ps = np.ascontiguousarray(p.transpose(2, 0, 1), np.float64)  # [positions, kv heads, columns]
    vs = values.astype(np.float64)
    o = np.zeros((kv_heads, values.shape[2], columns), f32)
    for j in range(count):
        sees = np.flatnonzero(~hidden[:, j])  # a position adds to the columns that see it, and to no other
        o[:, :, sees] = fma(ps[j, :, None, sees].transpose(1, 2, 0), vs[j, :, :, None], o[:, :, sees])
    return m, l, o
