"""Causal attention of one span, over the cache of its sequence.

Positions are cut into parts at absolute multiples of 256. Each part has its own maximum m, sum l and output o, computed
from nothing, and parts are merged in ascending order by one formula. A row sees the positions up to its own and nothing
of the others, so neither chunks nor batches change a bit:

    s_j = fma over d ascending of q_d * k_jd          m = max s_j        p_j = exp32(s_j - m)
    l   = 16 lane sums of p_j (lane j mod 16), then tree16
    o_d = fma over j ascending of p_j * v_jd
    merged: M = max(m1, m2), a = exp32(m1 - M), b = exp32(m2 - M), o = fma(o2, b, o1 * a), l = fma(l2, b, l1 * a)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from woolly.model.numerics import F32, exp32, f32, fma, max32, tree16

PART = 256
_TILE_ELEMENTS = 1 << 18


def attention(q: F32, keys: F32, values: F32, first: int) -> F32:
    """q [rows, heads, dim], already scaled, of positions first, first + 1, ...; keys and values [positions, kv heads,
    dim] up to the last of them at least. Gives [rows, heads, dim]."""
    rows, heads, _ = q.shape
    out = np.empty_like(q)
    step = max(1, _TILE_ELEMENTS // (heads * PART))
    for row in range(0, rows, step):
        some = q[row : row + step]
        out[row : row + step] = _rows(some, keys, values, first + row)
    return out


def _rows(q: F32, keys: F32, values: F32, first: int) -> F32:
    """As `attention`, for rows few enough that a part's scores fit a cache.

    Columns are the pairs (row, head of the group), rows ascending: those that see a position are a tail of them.
    """
    rows, heads, dim = q.shape
    kv_heads = keys.shape[1]
    share = heads // kv_heads
    columns = rows * share
    qs = q.reshape(rows, kv_heads, share, dim).transpose(1, 0, 2, 3).reshape(kv_heads, columns, dim).astype(np.float64)
    position = np.repeat(np.arange(first, first + rows), share)  # of each column

    m: F32 = np.empty((kv_heads, columns), f32)
    l: F32 = np.empty((kv_heads, columns), f32)
    o: F32 = np.empty((kv_heads, dim, columns), f32)
    for start in range(0, first + rows, PART):
        stop = min(start + PART, first + rows)
        seen = max(0, start - first) * share  # the columns before this one end before the part
        pm, pl, po = _part(qs[:, seen:], keys[start:stop], values[start:stop], position[seen:] - start)
        if start == 0:
            m, l, o = pm, pl, po
            continue
        m1, l1, o1 = m[:, seen:], l[:, seen:], o[:, :, seen:]
        both = max32(m1, pm)
        a, b = exp32(m1 - both), exp32(pm - both)
        o[:, :, seen:] = fma(po, b[:, None], o1 * a[:, None])
        l[:, seen:] = fma(pl, b, l1 * a)
        m[:, seen:] = both
    y: F32 = (o / l[:, None]).reshape(kv_heads, dim, rows, share)
    return y.transpose(2, 0, 3, 1).reshape(rows, heads, dim)


def _part(q: NDArray[np.float64], keys: F32, values: F32, last: NDArray[np.int64]) -> tuple[F32, F32, F32]:
    """(m, l, o) of one part; `last` is the last position, counted from the part's start, that each column sees."""
    kv_heads, columns, dim = q.shape
    count = len(keys)
    ks = keys.transpose(1, 2, 0).astype(np.float64)  # [kv heads, dim, positions]
    s = np.zeros((kv_heads, columns, count), f32)
    for d in range(dim):
        s = fma(q[:, :, d, None], ks[:, d, None, :], s)
    hidden = np.arange(count) > last[:, None]  # [columns, positions]
    m = np.where(hidden, f32(-np.inf), s).max(-1)
    p = np.where(hidden, f32(0), exp32(s - m[..., None]))

    lanes = np.zeros((kv_heads, columns, 16), f32)
    for j in range(0, count, 16):
        some = p[..., j : j + 16]
        lanes[..., : some.shape[-1]] += some
    l = tree16(lanes)[..., 0]

    ps = np.ascontiguousarray(p.transpose(2, 0, 1), np.float64)  # [positions, kv heads, columns]
    vs = values.astype(np.float64)
    o = np.zeros((kv_heads, dim, columns), f32)
    for j in range(count):
        seen = int(np.searchsorted(last, j))  # a position adds to the columns that see it, and to no other
        o[:, :, seen:] = fma(ps[j, :, None, seen:], vs[j, :, :, None], o[:, :, seen:])
    return m, l, o
