"""Plain quantisers: floats to the fields of any block type, for tests and tools.

One rule for all types. Without a minimum, the value largest in magnitude gets the most negative code, so the whole
range is used. With a minimum, the codes span least .. greatest. Super-blocks treat the scales (and minimums) of
their groups the same way once more. Codes are chosen last, against the scales as they are stored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from woolly.formats.blocks import Fields

F32 = NDArray[np.float32]


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
            whole = np.clip(np.rint(_divide(step, _value(d)[..., None])), low, high)
            scales = whole.astype(np.int8)
            step = whole * _value(d)[..., None]
            if least is not None:
                m = _round(_extreme(-least) / np.float32(high))
                steps = np.clip(np.rint(_divide(-least, _value(m)[..., None])), 0, high)
                mins = steps.astype(np.uint8)
                least = -(steps * _value(m)[..., None])
        start = x if least is None else x - least[..., None]
        codes = np.clip(np.rint(_divide(start, step[..., None])) + np.float32(offset), 0, top)
    n, blocks = x.shape[:2]
    return Fields(np.nan_to_num(codes).astype(np.uint8).reshape(n, blocks, -1), d, m, scales, mins)


def _extreme(x: F32) -> F32:
    """The value of largest magnitude along the last axis, with its sign."""
    place = np.abs(x).argmax(-1)[..., None]
    found: F32 = np.take_along_axis(x, place, -1)[..., 0]
    return found


def _divide(a: F32, b: F32) -> F32:
    """a / b, and 0 where b is 0."""
    a, b = np.broadcast_arrays(a, b)
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def _round(x: F32) -> NDArray[np.uint16]:
    return x.astype(np.float16).view(np.uint16)


def _value(bits: NDArray[np.uint16]) -> F32:
    return bits.view(np.float16).astype(np.float32)
