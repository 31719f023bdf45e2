"""Every row of LAYOUTS: the panels hold the file's bits, in the order the kernels read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.formats.test_table import random_rows
from woolly.gguf.tensor_types import FORMATS, LAYOUTS, PANEL, Layout

ROWS = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: layout.name)


def test_every_format_has_a_layout():
    assert [name.upper() for name in LAYOUTS] == list(FORMATS)


@ROWS
@pytest.mark.parametrize(("rows", "blocks"), [(16, 1), (48, 3), (1, 2), (15, 1), (17, 2), (33, 1)])
def test_unpacking_gives_back_every_bit(layout: Layout, rows: int, blocks: int):
    k = blocks * layout.format.block
    raw = random_rows(layout.format, rows, k)
    packed = layout.pack(raw, k)
    assert packed.dtype == np.uint8 and packed.shape == (layout.size(rows, k),)
    assert np.array_equal(layout.unpack(packed, rows, k), raw)


@ROWS
def test_the_packed_size_is_the_size_in_the_file(layout: Layout):
    raw = random_rows(layout.format, 32, 512)
    assert layout.pack(raw, 512).size == raw.size == layout.size(32, 512)
    if layout.segments:
        assert sum(segment.nbytes for segment in layout.segments) == layout.nbytes


@ROWS
def test_the_last_panel_is_filled_up_with_rows_of_zero_bytes(layout: Layout):
    raw = random_rows(layout.format, 19, 256)
    padded = np.zeros((32, raw.shape[1]), np.uint8)
    padded[:19] = raw
    assert np.array_equal(layout.pack(raw, 256), layout.pack(padded, 256))


@ROWS
def test_panels_stand_one_after_the_other_and_blocks_ascend_within(layout: Layout):
    raw, step = random_rows(layout.format, 32, 512), layout.nbytes
    packed = layout.pack(raw, 512).reshape(2, 512 // layout.format.block, step)
    blocks = raw.reshape(2, PANEL, -1, layout.format.nbytes)
    for panel in range(2):
        for block in range(packed.shape[1]):
            alone = layout.pack(blocks[panel, :, block], layout.format.block)
            assert np.array_equal(packed[panel, block], alone)


# The drawings of layouts.py, byte by byte, for one block of one panel.


def codes_of(name: str, raw: np.ndarray) -> np.ndarray:
    return FORMATS[name].fields(raw).codes[:, 0].astype(int)  # [16, block]


def test_q4_0_lines_hold_groups_j_and_j_plus_4():
    raw = random_rows(FORMATS["Q4_0"], 16, 32)
    packed, codes = LAYOUTS["q4_0"].pack(raw, 32), codes_of("Q4_0", raw)
    for r in range(16):
        assert np.array_equal(packed[2 * r : 2 * r + 2], raw[r, :2])
        for j in range(4):
            for i in range(4):
                assert packed[32 + 64 * j + 4 * r + i] == codes[r, 4 * j + i] | codes[r, 4 * (j + 4) + i] << 4


def test_q5_1_has_its_fifth_bits_in_one_line():
    raw = random_rows(FORMATS["Q5_1"], 16, 32)
    packed, codes = LAYOUTS["q5_1"].pack(raw, 32), codes_of("Q5_1", raw)
    for r in range(16):
        assert np.array_equal(packed[32 + 2 * r : 34 + 2 * r], raw[r, 2:4])
        for i in range(4):
            assert packed[64 + 256 + 4 * r + i] == sum((codes[r, 4 * g + i] >> 4) << g for g in range(8))


def test_q8_0_bytes_are_unsigned():
    raw = random_rows(FORMATS["Q8_0"], 16, 32)
    packed = LAYOUTS["q8_0"].pack(raw, 32)
    for r, column in ((0, 0), (3, 7), (15, 31)):
        assert packed[32 + 64 * (column // 4) + 4 * r + column % 4] == raw[r, 2 + column] ^ 0x80


def test_q4_k_header_has_the_minimum_negated_and_the_scales_cut_4_and_2():
    raw = random_rows(FORMATS["Q4_K"], 16, 256)
    packed, fields = LAYOUTS["q4_k"].pack(raw, 256), FORMATS["Q4_K"].fields(raw)
    assert fields.scales is not None and fields.mins is not None
    for r in range(16):
        assert np.array_equal(packed[2 * r : 2 * r + 2], raw[r, 0:2])
        assert np.array_equal(packed[32 + 2 * r : 34 + 2 * r], raw[r, 2:4] ^ [0, 0x80])
        sc, mn = fields.scales[r, 0].astype(int), fields.mins[r, 0].astype(int)
        for j in range(8):
            assert packed[64 + 16 * j + r] == sc[j] & 15 | (mn[j] & 15) << 4
            high = packed[64 + 128 + 16 * (j // 2) + r] >> 4 * (j % 2) & 15
            assert high == sc[j] >> 4 | mn[j] >> 4 << 2


def test_q5_k_has_all_nibbles_before_all_fifth_bits():
    raw = random_rows(FORMATS["Q5_K"], 16, 256)
    packed, codes = LAYOUTS["q5_k"].pack(raw, 256), codes_of("Q5_K", raw)
    for r, b, i in ((0, 0, 0), (5, 3, 2), (15, 7, 3)):
        column = 32 * b + i  # group 0 of block b
        assert packed[256 + 256 * b + 4 * r + i] == codes[r, column] & 15 | (codes[r, column + 16] & 15) << 4
        fifth = sum((codes[r, 32 * b + 4 * g + i] >> 4) << g for g in range(8))
        assert packed[256 + 2048 + 64 * b + 4 * r + i] == fifth


def test_q6_k_has_three_lines_for_four_groups():
    raw = random_rows(FORMATS["Q6_K"], 16, 256)
    packed, codes = LAYOUTS["q6_k"].pack(raw, 256), codes_of("Q6_K", raw)
    for r, s in ((0, 0), (9, 15)):
        assert packed[32 + 16 * s + r] == raw[r, 192 + s]
    for r, b, h, i in ((0, 0, 0, 0), (7, 4, 1, 3), (15, 7, 1, 2)):
        start, column = 32 + 256 + 384 * b + 192 * h, 32 * b + 16 * h + i
        for j in range(3):
            fourth = codes[r, column + 12] >> 2 * j & 3
            assert packed[start + 64 * j + 4 * r + i] == codes[r, column + 4 * j] | fourth << 6


def test_q3_k_has_the_files_scale_bytes_row_by_row():
    raw = random_rows(FORMATS["Q3_K"], 16, 256)
    packed, codes = LAYOUTS["q3_k"].pack(raw, 256), codes_of("Q3_K", raw)
    for r in range(16):
        for s in range(12):
            assert packed[32 + 16 * s + r] == raw[r, 96 + s]
    for r, b, i in ((0, 0, 0), (8, 5, 1), (15, 7, 3)):
        start = 32 + 192 + 192 * b
        assert packed[start + 4 * r + i] == sum((codes[r, 32 * b + 4 * j + i] & 3) << 2 * j for j in range(4))
        assert packed[start + 128 + 4 * r + i] == sum((codes[r, 32 * b + 4 * g + i] >> 2) << g for g in range(8))


def test_q2_k_has_the_files_scale_bytes_row_by_row():
    raw = random_rows(FORMATS["Q2_K"], 16, 256)
    packed, codes = LAYOUTS["q2_k"].pack(raw, 256), codes_of("Q2_K", raw)
    for r in range(16):
        for s in range(16):
            assert packed[64 + 16 * s + r] == raw[r, s]
    for r, b, i in ((0, 0, 0), (8, 5, 1), (15, 7, 3)):
        line = 64 + 256 + 128 * b + 64  # groups 4 .. 7
        assert packed[line + 4 * r + i] == sum(codes[r, 32 * b + 4 * (4 + j) + i] << 2 * j for j in range(4))


def test_floats_are_columns_of_sixteen_rows():
    values = np.arange(16 * 5, dtype=np.float32).reshape(16, 5)
    packed = LAYOUTS["f32"].pack(FORMATS["F32"].encode(values), 5).view(np.float32)
    assert np.array_equal(packed.reshape(5, 16), values.T)


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ2_XS", "IQ3_XXS"])
def test_even_signs_keep_something_else_in_place_of_the_eighth_column(name: str):
    raw = random_rows(FORMATS[name], 16, 256)
    packed, fields = LAYOUTS[name.lower()].pack(raw, 256), FORMATS[name].fields(raw)
    assert fields.signs is not None and fields.scales is not None
    signs, codes, scales = fields.signs[:, 0].reshape(16, 8, 4, 8), fields.codes[:, 0], fields.scales[:, 0]
    start = 32 + 16 * codes.shape[1]
    for r, column in ((0, 0), (5, 3), (9, 4), (15, 6)):
        for k in range(4):
            line = start + 128 * k + 64 * (column // 4)
            bits = sum(signs[r, 2 * k + b % 2, b // 2, column] << b for b in range(8))
            assert packed[line + 4 * r + column % 4] == bits
            eighth = scales[r, 2 * k] | scales[r, 2 * k + 1] << 4
            if name == "IQ2_XS":
                eighth = sum((codes[r, 4 * (2 * k + b % 2) + b // 2] >> 8) << b for b in range(8))
            assert packed[start + 128 * k + 64 + 4 * r + 3] == eighth
    for r, entry in ((0, 0), (7, 13), (15, 31)):
        assert packed[32 + 16 * entry + r] == codes[r, entry] & 255


def test_iq3_s_has_its_signs_in_lines_of_bits():
    raw = random_rows(FORMATS["IQ3_S"], 16, 256)
    packed, fields = LAYOUTS["iq3_s"].pack(raw, 256), FORMATS["IQ3_S"].fields(raw)
    assert fields.signs is not None
    for r, b, i in ((0, 0, 0), (8, 5, 1), (15, 7, 3)):
        line = 32 + 1024 + 128 + 64 + 64 * b
        assert packed[line + 4 * r + i] == sum(fields.signs[r, 0, 32 * b + 4 * g + i] << g for g in range(8))


def test_tq1_0_has_four_bytes_of_every_row_in_a_line():
    raw = random_rows(FORMATS["TQ1_0"], 16, 256)
    packed = LAYOUTS["tq1_0"].pack(raw, 256)
    for r, byte in ((0, 0), (7, 33), (15, 51)):
        assert packed[32 + 64 * (byte // 4) + 4 * r + byte % 4] == raw[r, byte]


def test_mxfp4_has_a_power_of_two_for_each_row():
    raw = random_rows(FORMATS["MXFP4"], 16, 32)
    packed, codes = LAYOUTS["mxfp4"].pack(raw, 32), codes_of("MXFP4", raw)
    assert np.array_equal(packed[:16], raw[:, 0])
    assert packed[16 + 64 * 2 + 4 * 3 + 1] == codes[3, 9] | codes[3, 25] << 4
