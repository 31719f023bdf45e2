"""The arithmetic everything else is written in: float32, every operation rounded once, every sum in a fixed order.

These functions are exact to the bit, and the native kernels give the same bits. So the order of additions below is a
promise, never a matter of taste: `fma` rounds once, `dot32` and `tree16` add in one fixed tree, `exp32` is one
polynomial with one set of constants and no library call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

f32 = np.float32
F32: TypeAlias = NDArray[np.float32]
Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]  # float64 arrays that hold float32 values

# Pages of the prefix cache on disk are of one version. Raise this number whenever any bit that a layer keeps of its
# positions changes, or its place in a page: by the arithmetic here, a pass of the plan, a family or a kernel.
NUMERICS_VERSION = 1

GROUP = 32  # columns that share a scale in an activation record and in the q8 cache
SMALLEST = f32(2.0**-100)  # a block whose largest magnitude is below this is zero
F16_MAX = f32(65504.0)
MOST = {8: f32(127), 16: f32(255 * 127 + 127)}  # the largest integer: a wide one is 255 * high + low, of 8 bits each

_DROPPED = np.int64((1 << 29) - 1)  # bits of a float64 that a normal float32 does not keep
_TIE = np.int64(1 << 28)
_LEAST_NORMAL = f32(2.0**-126)


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """a * b + c in float32, rounded once. Operands hold float32 values (as float32 or float64) and broadcast.

    The product is exact in float64. The sum is rounded to float64 and then to float32, and this second rounding can go
    wrong in one case only: the float64 lies exactly between two float32. Such elements, and those in the range of
    subnormal results (where more bits are dropped), are done again with the sum rounded to odd.
    """
    t = np.asarray(np.multiply(a, b, dtype=np.float64) + np.asarray(c))
    result = t.astype(f32)
    if t.size == 0:
        return result
    again = (t.view(np.int64) & _DROPPED) == _TIE
    if np.fmin.reduce(np.abs(result), axis=None) <= _LEAST_NORMAL:
        again |= (np.abs(result) <= _LEAST_NORMAL) & (t != 0)  # a zero is right, and common
    if again.any():
        x, y, z = (np.broadcast_to(np.asarray(v), t.shape)[again] for v in (a, b, c))
        result[again] = _fma_by_odd(x, y, z)
    return result


def _fma_by_odd(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> F32:
    """The exact product in float64, the sum rounded to odd, then to float32: right always, but slow."""
    p = np.multiply(a, b, dtype=np.float64)
    z = c.astype(np.float64)
    t = p + z
    d = t - p
    lost = (p - (t - d)) + (z - d)
    bits = t.view(np.int64)
    inexact = np.isfinite(t) & (lost != 0) & (bits & 1 == 0)
    bits = bits + np.where(inexact, np.where((lost > 0) == (t > 0), 1, -1), 0)
    rounded: F32 = bits.view(np.float64).astype(f32)
    return rounded


def tree16(x: F32) -> F32:
    """Sum of the last axis, of length 16: lane i + lane i+8, then +4, +2, +1. The axis stays, with length 1."""
    for half in (8, 4, 2, 1):
        x = x[..., :half] + x[..., half : 2 * half]
    return x


def dot32(x: F32, y: F32) -> F32:
    """Sum of x * y over the last axis: element i goes to partial i mod 32, in order, by fma; partial j + partial j+16;
    tree16. Missing elements of the last 32 are zeros. The axis stays, with length 1."""
    missing = -x.shape[-1] % 32
    if missing:
        pad = [(0, 0)] * (x.ndim - 1) + [(0, missing)]
        x, y = np.pad(x, pad), np.pad(y, pad)
    partial = np.zeros((*x.shape[:-1], 32), f32)
    for i in range(0, x.shape[-1], 32):
        partial = fma(x[..., i : i + 32], y[..., i : i + 32], partial)
    return tree16(partial[..., :16] + partial[..., 16:])


# exp(x) = 2^n * e^r with n = rint(x / ln 2) and |r| <= ln 2 / 2; ln 2 in two parts, so that n * _LN2_HIGH is exact.
_LOG2_E = f32(1.44269504088896341)
_LN2_HIGH = f32(-0.693145751953125)
_LN2_LOW = f32(-1.428606765330187e-6)
_EXP = tuple(
    f32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)


def exp32(x: F32) -> F32:
    """e^x for x clamped to [-87, 88]; NaN stays NaN."""
    x = np.where(x < f32(-87), f32(-87), x)
    x = np.where(x > f32(88), f32(88), x)
    n = np.rint(x * _LOG2_E)
    r = fma(n, _LN2_HIGH, x)
    r = fma(n, _LN2_LOW, r)
    p: F32 = np.full_like(r, _EXP[0])
    for c in _EXP[1:]:
        p = fma(p, r, c)
    p = fma(p * r, r, r + f32(1))
    power = np.where(np.isnan(n), f32(0), n).astype(np.int32)
    return p * ((power + np.int32(127)) << np.int32(23)).view(f32)


def silu32(x: F32) -> F32:
    """x / (1 + e^-x)."""
    return x / (f32(1) + exp32(-x))


def sigmoid32(x: F32) -> F32:
    """1 / (1 + e^-x)."""
    return f32(1) / (f32(1) + exp32(-x))


# x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 is x sigmoid(x (_GELU + _GELU_CUBE x^2)).
_GELU = f32(1.5957691216057308)
_GELU_CUBE = f32(0.071354816272600248)


def gelu32(x: F32) -> F32:
    """GELU by the tanh formula, as a sigmoid."""
    return x / (f32(1) + exp32(-(x * fma(x * x, _GELU_CUBE, _GELU))))


# tanh(x) is a quotient of two polynomials, right to a few units of the last place up to _TANH_END; beyond it is +-1.
_TANH_END = f32(7.90531110763549805)
_TANH_ABOVE = tuple(
    f32(c)
    for c in (
        -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
        1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
    )
)  # fmt: skip
_TANH_BELOW = tuple(
    f32(c) for c in (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
)


def tanh32(x: F32) -> F32:
    """The hyperbolic tangent; NaN stays NaN."""
    x = np.where(x < -_TANH_END, -_TANH_END, x)
    x = np.where(x > _TANH_END, _TANH_END, x)
    square = x * x
    above, below = (np.full_like(x, some[0]) for some in (_TANH_ABOVE, _TANH_BELOW))
    for c in _TANH_ABOVE[1:]:
        above = fma(above, square, c)
    for c in _TANH_BELOW[1:]:
        below = fma(below, square, c)
    return (x * above) / below


# ln(1 + t) of 0 <= t <= 1 is 2 atanh(t / (2 + t)), whose argument is at most 1/3.
_ATANH = tuple(f32(2.0 / n) for n in (15, 13, 11, 9, 7, 5, 3, 1))


def softplus32(x: F32) -> F32:
    """ln(1 + e^x), as max(x, 0) + ln(1 + e^-|x|); NaN stays NaN."""
    t = exp32(min32(x, f32(0) - x))
    y = t / (t + f32(2))
    square = y * y
    p = np.full_like(x, _ATANH[0])
    for c in _ATANH[1:]:
        p = fma(p, square, c)
    return fma(p, y, max32(x, f32(0)))


def max32(a: F32 | np.float32, b: F32 | np.float32) -> F32:
    """The larger of two, as every instruction set has it: b unless a > b."""
    return np.where(a > b, a, b)


def min32(a: F32 | np.float32, b: F32 | np.float32) -> F32:
    """The smaller of two: b unless a < b."""
    return np.where(a < b, a, b)


def round_f16(x: F32) -> F32:
    """The nearest float16 (ties to even), as float32; beyond ±65504 it is ±65504; NaN stays NaN."""
    return np.clip(x, -F16_MAX, F16_MAX).astype(np.float16).astype(f32)


def round_q8(x: F32) -> F32:
    """The values that the q8 cache keeps of x [..., d]: per 32 of d (the last group may be shorter) one float16 scale
    max|x| / 127, int8 values. A group that holds a NaN or an infinity becomes NaN, so that it is noticed."""
    out = np.empty_like(x)
    for i in range(0, x.shape[-1], GROUP):
        group = x[..., i : i + GROUP]
        largest = np.abs(group).max(-1, keepdims=True)  # NaN if the group holds one
        scale = round_f16(largest / f32(127))
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            q = np.clip(np.rint(group * (f32(1) / scale)), f32(-127), f32(127))
        value = np.where(scale == 0, f32(0), q * scale)
        out[..., i : i + GROUP] = np.where(np.isfinite(largest), value, f32(np.nan))
    return out


@dataclass(frozen=True, slots=True)
class Quantized:
    """The activation record: integers of 8 or 16 bits with one scale per 32 columns, and their sums.

    q      int8 or int16 [rows, k]      round half to even of x * (most / max|x|); most is MOST[bits]
    da     float32       [rows, k/32]   the scale, max|x| / most
    asum   float32       [rows, k/32]   da * sum of q over the 32
    sum16  int32         [rows, k/16]   sum of q over 16
    """

    q: NDArray[np.int8] | NDArray[np.int16]
    da: F32
    asum: F32
    sum16: NDArray[np.int32]

    def take(self, rows: NDArray[np.intp]) -> Quantized:
        """The record of some rows."""
        return Quantized(self.q[rows], self.da[rows], self.asum[rows], self.sum16[rows])

    def cut(self, pieces: int) -> Quantized:
        """The record of rows that are cut into `pieces` pieces each, with a row for each piece."""
        rows = len(self.q) * pieces
        return Quantized(
            self.q.reshape(rows, -1),
            self.da.reshape(rows, -1),
            self.asum.reshape(rows, -1),
            self.sum16.reshape(rows, -1),
        )

    @property
    def values(self) -> F32:
        """The float32 values the record stands for, [rows, k]."""
        return self.q.astype(f32) * np.repeat(self.da, GROUP, axis=-1)


def quantize32(x: F32, bits: int) -> Quantized:
    """x [rows, k] as an activation record of 8 or 16 bits, k a multiple of 32.

    A block whose largest magnitude is below 2^-100 is zero. A NaN or an infinity in a block makes its scale NaN.
    """
    rows, k = x.shape
    most = MOST[bits]
    block = x.reshape(rows, k // GROUP, GROUP)
    largest = np.abs(block).max(-1)
    finite = np.isfinite(largest)
    live = finite & (largest >= SMALLEST)
    m = np.where(live, largest, f32(1))
    scaled = np.where(live[..., None], block, f32(0)) * (most / m)[..., None]
    integers = np.rint(scaled).reshape(rows, k)
    q = integers.astype(np.int8) if bits == 8 else integers.astype(np.int16)
    da = np.where(live, m / most, np.where(finite, f32(0), f32(np.nan)))
    sum16 = q.reshape(rows, k // 16, 16).sum(-1, dtype=np.int32)
    asum = da * sum16.reshape(rows, k // GROUP, 2).sum(-1).astype(f32)
    return Quantized(q, da, asum, sum16)
