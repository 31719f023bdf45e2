"""Tables by position: rotary angles with every kind of scaling, and the attention temperature."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from woolly.model.tables import RopeTable, TemperatureTable


def test_a_plain_table_turns_pair_i_by_base_to_minus_2i_over_rot():
    rows = RopeTable(base=10000.0, rot=8).rows(5, 8)
    assert rows.shape == (3, 8) and rows.dtype == np.float32
    for p in range(5, 8):
        for i in range(4):
            angle = p * 10000.0 ** (-2 * i / 8)
            assert rows[p - 5, i] == np.float32(math.cos(angle))
            assert rows[p - 5, 4 + i] == np.float32(math.sin(angle))


def test_rows_do_not_depend_on_where_a_range_begins():
    table = RopeTable(base=500000.0, rot=64, scaling="yarn", factor=4.0, original=128)
    full = table.rows(0, 700)
    assert np.array_equal(full[300:450], table.rows(300, 450))
    assert table.rows(7, 7).shape == (0, 64)


def test_linear_scaling_and_factors_divide_the_angles():
    plain = RopeTable(base=10000.0, rot=8)
    assert np.array_equal(RopeTable(10000.0, 8, scaling="linear", factor=4.0).rows(400, 401), plain.rows(100, 101))
    half = RopeTable(10000.0, 8, factors=(2.0, 2.0, 2.0, 2.0))
    assert np.array_equal(half.rows(200, 201), plain.rows(100, 101))


def test_yarn_keeps_fast_pairs_and_slows_down_slow_ones():
    table = RopeTable(base=10000.0, rot=32, scaling="yarn", factor=4.0, original=256)
    plain = RopeTable(base=10000.0, rot=32).frequencies()
    share = [a / b for a, b in zip(table.frequencies(), plain, strict=True)]
    # dim(32) = 32 ln(256 / (64 pi)) / (2 ln 10000) = 0.42, dim(1) = 6.44: a ramp from pair 0 to pair 7
    expected = [1 - min(1, i / 7) * 0.75 for i in range(16)]
    assert share == pytest.approx(expected, rel=1e-14)


def test_yarn_scales_cosines_and_sines_by_the_logarithm_of_the_factor():
    yarn = {"base": 10000.0, "rot": 8, "scaling": "yarn", "original": 64}
    assert RopeTable(**yarn, factor=4.0).magnitude() == pytest.approx(1 + 0.1 * math.log(4))
    assert RopeTable(**yarn, factor=0.5).magnitude() == 1
    assert RopeTable(**yarn, factor=16.0, log_multiplier=1.0).magnitude() == pytest.approx(1)
    assert RopeTable(**yarn, factor=4.0, attn_factor=1.5).rows(0, 1)[0, 0] == np.float32(1.5 * (1 + 0.1 * math.log(4)))


def test_the_temperature_grows_with_every_original_context():
    rows = TemperatureTable(scale=0.1, length=16).rows(0, 64)[:, 0]
    assert (rows[:16] == 1).all()
    assert (rows[16:32] == np.float32(1 + 0.1 * math.log(2))).all()
    assert rows[63] == np.float32(1 + 0.1 * math.log(4))


@pytest.mark.parametrize("table", [RopeTable(10000.0, 8), TemperatureTable(0.1, 16)])
def test_positions_before_the_first_are_refused(table):
    with pytest.raises(ValueError, match="-1 to 4"):
        table.rows(-1, 4)


@pytest.mark.soak
def test_a_block_of_positions_takes_about_a_millisecond():
    table = RopeTable(base=10000.0, rot=64, scaling="yarn", factor=4.0, original=256)
    times = []
    for _ in range(20):
        start = time.thread_time()
        table.rows(256, 512)
        times.append(time.thread_time() - start)
    assert min(times) < 0.01
    print(f"256 positions of 32 pairs: {min(times) * 1e3:.2f} ms")
