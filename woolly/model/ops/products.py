"""Matrix products, in the two orders of addition that exist.

Both work on tiles that stay in a core's cache; every output element is computed alone, k ascending, so tiles do not
change a bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from woolly.model.ops.numerics import F32, GROUP, Quantized, f32, fma
from woolly.model.ops.weights import Matrix

_TILE_ROWS = 32
_TILE_ELEMENTS = 16_384


def product(x: F32 | Quantized, w: Matrix) -> F32:
    """x [rows, k] times w [n, k] transposed: by blocks where x is quantised, else by columns of the decoded w."""
    rows = x.q.shape[0] if isinstance(x, Quantized) else x.shape[0]
    y = np.empty((rows, w.rows), f32)
    for row in range(0, rows, _TILE_ROWS):
        some = slice(row, min(row + _TILE_ROWS, rows))
        width = max(16, _TILE_ELEMENTS // (some.stop - some.start))
        for first in range(0, w.rows, width):
            part = slice(first, min(first + width, w.rows))
            y[some, part] = _by_blocks(x, w, some, part) if isinstance(x, Quantized) else _by_columns(x, w, some, part)
    return y


def _by_columns(x: F32, w: Matrix, some: slice, part: slice) -> F32:
    """Float weights: column c is added to accumulator c mod 4 by fma, c ascending; (a0 + a1) + (a2 + a3)."""
    xt = x[some].T.astype(np.float64)  # [k, rows]
    wt = w.values[part].T.astype(np.float64)  # [k, n]
    a = np.zeros((4, xt.shape[1], wt.shape[1]), f32)
    for c in range(0, w.k, 4):
        count = min(4, w.k - c)
        a[:count] = fma(xt[c : c + count, :, None], wt[c : c + count, None, :], a[:count])
    y: F32 = (a[0] + a[1]) + (a[2] + a[3])
    return y


def _by_blocks(x: Quantized, w: Matrix, some: slice, part: slice) -> F32:
    """Quantised weights and inputs: integer sums inside a group, then one accumulator over the blocks, ascending.

    Sums of the integers are exact and become float32 in one rounding. einsum and not matmul, because a BLAS
    may use threads for it, and wait for them on a busy machine a hundred times longer than it computes.
    """
    group = w.format.group
    q, scale, least = w.parts.q[part], w.parts.scale[part], w.parts.least
    rows, n, groups = some.stop - some.start, q.shape[0], w.k // group
    exact: type[np.floating[Any]] = np.float32 if x.q.dtype == np.int8 else np.float64  # 20 bits, or 28
    xs, ws = x.q[some].astype(exact).reshape(rows, groups, group), q.astype(exact).reshape(n, groups, group)
    sums = np.einsum("rgk,ngk->grn", xs, ws).astype(f32)  # [groups, rows, n]
    da, asum, sum16 = x.da[some], x.asum[some], x.sum16[some].astype(f32)
    minima = None if least is None else least[part]
    acc = np.zeros((rows, n), f32)
    for b in range(w.k // GROUP):
        d = da[:, b, None]
        if group == GROUP:
            acc = fma(sums[b] * scale[:, b], d, acc)
            if minima is not None:
                acc = fma(minima[:, b], asum[:, b, None], acc)
        else:
            low, high = 2 * b, 2 * b + 1
            f = fma(sums[high], scale[:, high], sums[low] * scale[:, low])
            acc = fma(f, d, acc)
            if minima is not None:
                for j in (low, high):
                    acc = fma(minima[:, j], d * sum16[:, j, None], acc)
    return acc
