"""The values of stored scales, and plain quantisers: floats to the fields of any block type, for tests and tools.

One rule for all types. Without a minimum, the value largest in magnitude gets the most negative code (with a codebook,
the entry that reaches farthest), so the whole range is used; a codebook of signs alone has the root mean square for its
scale. With a minimum, the codes span least .. greatest. Super-blocks treat the scales (and minimums) of their groups
the same way once more. Codes are chosen last, against the scales as they are stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from woolly.gguf.tensor_types.blocks import Array, Fields
from woolly.gguf.tensor_types.codebooks import Codebook, nearest

F32 = NDArray[np.float32]


def scale_of(fields: Fields, levels: tuple[float, ...] | None) -> F32:
    """The float32 scales of blocks: [..., groups], or [..., 1] where a block has only one."""
    d = np.float32(1) if fields.d is None else _value(fields.d)[..., None]
    if fields.scales is None:
        return np.asarray(d)
    small = fields.scales.astype(np.float32) if levels is None else np.array(levels, np.float32)[fields.scales]
    with np.errstate(invalid="ignore"):  # a broken file may hold NaN and infinity; the caller judges them
        scale: F32 = d * small
    return scale


def quantize(
    x: F32, *, bits: int, offset: int, has_min: bool, scale_range: tuple[int, int] | None
) -> Fields:  # x: [n, blocks, groups, group]
    """The fields of blocks whose values are near x."""
    top = (1 << bits) - 1
    scales = mins = m = None
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit shows as an infinite scale
        if has_min:
            least = x.min(-1)
            if scale_range is not None:
                least = np.minimum(least, 0)  # the stored minimum is subtracted and cannot be negative
            step = (x.max(-1) - least) / np.float32(top)
        else:
            least = None
            step = _extreme(x) / np.float32(-offset)
        if scale_range is None:  # one group in a block
            d = _round(step[..., 0])
            step = _value(d)[..., None]
            if least is not None:
                m = _round(least[..., 0])
                least = _value(m)[..., None]
        else:
            low, high = scale_range
            d = _round(_extreme(step) / np.float32(low if low else high))
            integers = np.clip(np.rint(_divide(step, _value(d)[..., None])), low, high)
            scales = integers.astype(np.int8)
            step = integers * _value(d)[..., None]
            if least is not None:
                m = _round(_extreme(-least) / np.float32(high))
                steps = np.clip(np.rint(_divide(-least, _value(m)[..., None])), 0, high)
                mins = steps.astype(np.uint8)
                least = -(steps * _value(m)[..., None])
        start = x if least is None else x - least[..., None]
        codes = np.clip(np.rint(_divide(start, step[..., None])) + np.float32(offset), 0, top)
    n, blocks = x.shape[:2]
    return Fields(np.nan_to_num(codes).astype(np.uint8).reshape(n, blocks, -1), d, m, scales, mins)


def quantize_by_codebook(
    x: F32, codebook: Codebook, levels: tuple[float, ...] | None, kind: np.dtype[Any] | None
) -> tuple[Fields, bool]:  # x: [n, blocks, groups, group]
    """The fields of blocks whose values are near x, and whether the scales are large enough. kind: how d is stored."""
    n, blocks = x.shape[:2]
    entries = codebook.entries().astype(np.float32)
    farthest = entries.flat[np.abs(entries).argmax()]
    even = codebook.signed or -farthest in entries
    fits, d, scales = True, None, None
    with np.errstate(all="ignore"):
        runs = x.reshape(n, blocks, 1, -1) if levels is None else x
        step = np.abs(runs).max(-1) / np.abs(farthest) if even else _extreme(runs) / farthest
        if (np.abs(entries) == np.abs(farthest)).all():  # entries that differ in sign alone
            step = np.sqrt(np.mean(np.square(runs), -1)) / np.abs(farthest)
        if levels is not None:
            table = np.array(levels, np.float32)
            unit: Any = np.float32(1)
            if kind is not None:
                d = _round(_extreme(step) / table[np.abs(table).argmax()])
                unit = _value(d)[..., None, None]
            scales = np.abs(step[..., None] - unit * table).argmin(-1).astype(np.uint8)
            fits = kind is not None or bool((step <= table.max()).all())
        elif kind == np.uint8:
            power = np.clip(np.rint(np.log2(step[..., 0])) + 128, 0, 254)
            d = np.where(np.isfinite(step[..., 0]), power, 255).astype(np.uint8)
        else:
            d = _round(step[..., 0])
        step = scale_of(Fields(np.empty(0), d, None, scales), levels)
        units = np.nan_to_num(_divide(x, step[..., None]))
    codes, signs = nearest(codebook, units.reshape(n, blocks, -1))
    return Fields(codes, d, None, scales, None, signs), fits


def _extreme(x: F32) -> F32:
    """The value of largest magnitude along the last axis, with its sign."""
    place = np.abs(x).argmax(-1)[..., None]
    value: F32 = np.take_along_axis(x, place, -1)[..., 0]
    return value


def _divide(a: F32, b: F32) -> F32:
    """a / b, and 0 where b is 0."""
    a, b = np.broadcast_arrays(a, b)
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def _round(x: F32) -> NDArray[np.uint16]:
    return x.astype(np.float16).view(np.uint16)


def _value(bits: Array) -> F32:
    """The value of d: an f16, or a power of two as a byte (E8M0), where 255 is NaN."""
    if bits.dtype == np.uint8:
        power = np.ldexp(np.float32(1), bits.astype(np.int32) - 128)
        return np.where(bits == 255, np.float32(np.nan), power)
    return bits.view(np.float16).astype(np.float32)
