"""The arithmetic: fma is rounded once, sums have one order, exp has one polynomial, quantising has its edges."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from woolly.model.ops.numerics import (
    Quantized,
    dot32,
    exp32,
    f32,
    fma,
    max32,
    quantize32,
    round_f16,
    round_q8,
    silu32,
    tree16,
)

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest(x: Fraction) -> float:
    """The float32 nearest to a rational number, ties to even, by rational arithmetic alone."""
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x.numerator))) - math.floor(math.log2(x.denominator))
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(x / quantum) * quantum
    return math.copysign(math.inf, rounded) if abs(rounded) >= 2**128 else float(rounded)


def bits(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, f32).view(np.int32)


@given(finite, finite, finite)
@example(1.0 + 2.0**-23, 1.0 + 2.0**-23, 2.0**-60)  # the product lies above a tie by less than float64 can tell
@example(1.0 + 2.0**-12, 1.0 + 2.0**-12, 2.0**-80)  # a tie of the product, broken by a tiny summand
@example(1.0 + 2.0**-12, 1.0 + 2.0**-12, -(2.0**-80))
@example(2.0**-75, 2.0**-74, 2.0**-149)  # subnormal results
@example(2.0**-75, -(2.0**-75), 2.0**-126)
@example((1 + 2.0**-23) * 2.0**-75, (1 - 2.0**-23) * 2.0**-75, 2.0**-127 + 2.0**-149)  # just below a subnormal tie
@example(3.4028234663852886e38, 1.0, 1.0141204801825835e31)  # the tie between the largest and infinity
@example(3.4028234663852886e38, 1.0, 1.0141203892465e31)
def test_fma_is_the_exact_sum_rounded_once(a, b, c):
    with np.errstate(all="ignore"):
        got = float(fma(f32(a), f32(b), f32(c)))
    assert got == nearest(Fraction(a) * Fraction(b) + Fraction(c))


@given(st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(-(2**24), 2**24), st.integers(-160, 40))
def test_fma_is_exact_where_large_and_tiny_meet_in_a_tie(a, b, c, shift):
    c = math.ldexp(c, shift)
    if not math.isfinite(c) or float(f32(c)) != c:
        c = float(f32(c))
    assert float(fma(f32(a), f32(b), f32(c))) == nearest(Fraction(a) * Fraction(b) + Fraction(c))


def test_fma_of_an_array_is_the_fma_of_its_elements():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((7, 1)).astype(f32)
    b = rng.integers(-4, 5, (1, 300)).astype(f32)
    c = (rng.standard_normal((7, 300)) * 2.0 ** rng.integers(-140, 20, (7, 300))).astype(f32)
    full = fma(a, b, c)
    alone = np.array([[fma(a[i, 0], b[0, j], c[i, j]) for j in range(300)] for i in range(7)])
    assert (bits(full) == bits(alone)).all()
    assert fma(a[:0], b, c[:0]).shape == (0, 300)


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [(np.inf, 1, 1, np.inf), (np.inf, 0, 1, np.nan), (np.inf, 1, -np.inf, np.nan), (3e38, 3e38, 0, np.inf)],
)
def test_fma_takes_infinity_and_nan_as_ieee_does(a, b, c, expected):
    with np.errstate(all="ignore"):
        assert np.array_equal(fma(f32(a), f32(b), f32(c)), f32(expected), equal_nan=True)


def test_tree16_adds_halves():
    for x in np.random.default_rng(2).standard_normal((20, 16)).astype(f32):
        eight = [x[i] + x[i + 8] for i in range(8)]
        four = [eight[i] + eight[i + 4] for i in range(4)]
        assert tree16(x)[0] == (four[0] + four[2]) + (four[1] + four[3])


@pytest.mark.parametrize("n", [1, 14, 31, 32, 33, 100])
def test_dot32_adds_element_i_to_partial_i_mod_32(n):
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(f32) for _ in range(2))
    partial = np.zeros(32, f32)
    for i in range(n):
        partial[i % 32] = fma(x[i], y[i], partial[i % 32])
    assert dot32(x, y)[0] == tree16(partial[:16] + partial[16:])[0]


def test_exp32_is_near_the_exponential_everywhere():
    x = np.linspace(-87, 88, 400_001).astype(f32)
    error = np.abs(exp32(x).astype(np.float64) / np.exp(x.astype(np.float64)) - 1)
    assert error.max() < 2.5 * 2.0**-24  # of a result in [1, 2): one unit in the last place is 2^-23
    assert exp32(f32([0.0]))[0] == 1


def test_exp32_has_the_bits_it_always_had():
    x = (np.arange(-87 * 64, 88 * 64 + 1) / 64).astype(f32)  # exact in float32
    assert zlib.crc32(exp32(x).tobytes()) == 2_160_511_823


def test_exp32_clamps_and_keeps_nan():
    low, high, nan = exp32(f32([-np.inf, np.inf, np.nan]))
    assert (low, high) == tuple(exp32(f32([-87, 88])))
    assert low > 0 and np.isfinite(high) and np.isnan(nan)
    assert exp32(f32([-1000]))[0] == low


def test_silu32_is_x_through_its_sigmoid():
    x = np.linspace(-20, 20, 1001).astype(f32)
    exact = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))
    assert np.abs(silu32(x) - exact).max() < 2e-6
    assert np.isnan(silu32(f32([np.nan]))[0])


def test_max32_is_the_second_unless_the_first_is_larger():
    assert max32(f32([1, 2, np.nan]), f32([2, 1, 3])).tolist() == [2, 2, 3]
    assert np.isnan(max32(f32([1]), f32([np.nan])))[0]


def test_rounding_to_f16_goes_to_even_and_stops_at_the_largest():
    x = f32([1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519, 65520, 1e30, np.inf, -np.inf, 2**-25, 3 * 2**-26, -0.0])
    expected = [1, 1 + 2**-9, 65504, 65504, 65504, 65504, 65504, -65504, 0, 2**-24, 0]
    assert round_f16(x).tolist() == expected
    assert np.isnan(round_f16(f32([np.nan]))[0])


@pytest.mark.parametrize("dim", [8, 32, 40, 80])
def test_q8_rounding_has_one_f16_scale_per_32_and_the_rest(dim):
    x = np.random.default_rng(dim).standard_normal((3, 2, dim)).astype(f32)
    got = round_q8(x)
    for i in range(0, dim, 32):
        for row, value in zip(x[..., i : i + 32].reshape(6, -1), got[..., i : i + 32].reshape(6, -1), strict=True):
            s = f32(np.float16(np.abs(row).max() / f32(127)))
            q = np.clip(np.rint(row * (f32(1) / s)), -127, 127)
            assert (value == q.astype(f32) * s).all()


def test_q8_rounding_of_nothing_is_nothing_and_of_nan_is_seen():
    assert round_q8(np.full((1, 1, 33), 1e-9, f32)).tolist() == np.zeros((1, 1, 33)).tolist()
    for bad in (np.nan, np.inf):
        x = np.ones((1, 1, 64), f32)
        x[0, 0, 3] = bad
        with np.errstate(all="ignore"):
            got = round_q8(x)
        assert np.isnan(got[..., :32]).all() and np.isfinite(got[..., 32:]).all()


def test_q8_rounding_saturates_where_the_scale_would_not_fit_f16():
    got = round_q8(np.full((1, 1, 4), 3e38, f32))
    assert (got == f32(127) * f32(65504)).all()


def block(first: float, rest: float = 0.0) -> Quantized:
    x = np.full((1, 32), rest, f32)
    x[0, 0] = first
    with np.errstate(all="ignore"):
        return quantize32(x, 8)


def test_quantising_follows_the_formula():
    x = np.random.default_rng(5).standard_normal((4, 96)).astype(f32)
    r = quantize32(x, 8)
    for row in range(4):
        for b in range(3):
            part = x[row, 32 * b : 32 * b + 32]
            m = np.abs(part).max()
            q = np.rint(part * (f32(127) / m))
            assert (r.q[row, 32 * b : 32 * b + 32] == q).all()
            assert r.da[row, b] == m / f32(127)
            assert r.asum[row, b] == r.da[row, b] * f32(q.sum())
            assert r.sum16[row, 2 * b : 2 * b + 2].tolist() == [q[:16].sum(), q[16:].sum()]
    assert np.abs(r.values - x).max() <= np.abs(x).max() / 127 * 0.5001


def test_quantising_rounds_half_to_even():
    assert block(127.0, 0.5).q[0, :3].tolist() == [127, 0, 0]
    assert block(127.0, 1.5).q[0, :3].tolist() == [127, 2, 2]
    assert block(-127.0, -2.5).q[0, :3].tolist() == [-127, -2, -2]


def test_a_block_below_the_smallest_is_zero_and_at_it_is_not():
    below, at = block(np.nextafter(f32(2.0**-100), f32(0))), block(2.0**-100)
    assert (below.q[0, 0], below.da[0, 0], below.asum[0, 0]) == (0, 0, 0)
    assert (at.q[0, 0], at.da[0, 0]) == (127, f32(2.0**-100) / f32(127))
    assert (block(0.0).q == 0).all() and block(0.0).da[0, 0] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_with_nan_or_infinity_has_a_scale_of_nan(bad):
    r = block(bad, 1.0)
    assert (r.q == 0).all() and (r.sum16 == 0).all()
    assert np.isnan(r.da[0, 0]) and np.isnan(r.asum[0, 0])


def test_the_largest_floats_are_quantised():
    r = block(3.4028235e38, -3.4028235e38)
    assert r.q[0, :2].tolist() == [127, -127] and np.isfinite(r.da).all()
