"""Every row of FORMATS: bytes to values and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.golden import DATA
from woolly.errors import FileError, RequestError, UnsupportedError
from woolly.gguf.tensor_types import FORMATS, Format, format_of

ROWS = pytest.mark.parametrize("f", FORMATS.values(), ids=lambda f: f.name)
QUANTISED = [f for f in FORMATS.values() if not f.is_float]
BLOCKS = pytest.mark.parametrize("f", QUANTISED, ids=lambda f: f.name)


def random_rows(f: Format, rows: int, k: int, seed: int = 1) -> np.ndarray:
    """Random bytes; for quantised types every bit pattern is a legal block."""
    raw = np.random.default_rng(seed).integers(0, 256, (rows, f.row_bytes(k)), dtype=np.uint8)
    return f.raw(f.fields(raw)) if f.name == "TQ1_0" else raw  # where 243 of the 256 bytes say all that there is to say


@BLOCKS
def test_decoding_gives_the_golden_bits(f: Format):
    with np.load(DATA / "blocks.npz") as golden:
        raw, values = golden[f"{f.name}_raw"], golden[f"{f.name}_values"]
    assert np.array_equal(f.decode(raw, f.block).view(np.uint32), values.view(np.uint32))


@ROWS
def test_decoding_agrees_with_the_gguf_package(f: Format):
    gguf = pytest.importorskip("gguf")
    if f.name in ("Q1_0", "Q2_0"):
        pytest.skip("this version of the package cannot decode it")
    values = np.random.default_rng(3).standard_normal((5, 512)).astype(np.float32)
    raw = f.encode(values)
    theirs = gguf.dequantize(
        raw.view({"F32": "<f4", "F16": "<f2"}.get(f.name, np.uint8)), gguf.GGMLQuantizationType(f.id)
    )
    assert np.array_equal(f.decode(raw, 512), theirs)
    assert gguf.GGML_QUANT_SIZES[f.id] == (f.block, f.nbytes)
    assert gguf.GGMLQuantizationType(f.id).name == f.name


@BLOCKS
def test_fields_hold_every_bit_of_a_block(f: Format):
    raw = random_rows(f, 7, 512)
    assert np.array_equal(f.raw(f.fields(raw)), raw)


@BLOCKS
def test_parts_are_the_decoded_values_taken_apart(f: Format):
    raw = f.encode(np.random.default_rng(4).standard_normal((3, 512)).astype(np.float32))
    parts = f.parts(raw)
    assert parts.q.shape == (3, 512) and parts.q.dtype == np.int8
    assert parts.scale.shape == (3, 512 // f.group) and (parts.least is not None) == f.has_min
    product = parts.q.astype(np.float32) * np.repeat(parts.scale, f.group, axis=1)
    values = product if parts.least is None else product + np.repeat(parts.least, f.group, axis=1)
    assert np.array_equal(values, f.decode(raw, 512))
    if f.codebook is None:
        assert parts.q.min() >= -f.offset and parts.q.max() < (1 << f.bits) - f.offset
    else:
        entries = f.codebook.entries()
        assert set(np.unique(parts.q)) <= set(np.unique(entries)) | set(
            np.unique(-entries) if f.codebook.signed else ()
        )


def test_two_bytes_of_a_tq1_0_block_that_say_the_same_are_one() -> None:
    f = FORMATS["TQ1_0"]
    raw = np.repeat(np.arange(256, dtype=np.uint8)[:, None], f.nbytes, axis=1)
    again = f.raw(f.fields(raw))
    assert len(np.unique(again[:, 0])) == 243 and len(np.unique(again[:, 51])) == 81  # five digits, and four
    assert np.array_equal(f.parts(again).q, f.parts(raw).q)


def test_a_q4_0_block_written_by_hand_decodes_as_drawn():
    codes = np.arange(32) % 16  # code 0 .. 15 in the low halves, again in the high halves
    raw = np.concatenate([np.array([0.5], "<f2").view(np.uint8), (codes[:16] | codes[16:] << 4).astype(np.uint8)])
    assert np.array_equal(FORMATS["Q4_0"].decode(raw[None], 32)[0], (codes - 8) * np.float32(0.5))


def test_a_q4_k_block_written_by_hand_decodes_as_drawn():
    scales, mins = np.array([1, 2, 3, 4, 17, 34, 51, 63]), np.array([63, 40, 20, 0, 1, 2, 33, 62])
    small = [
        *(scales[:4] | scales[4:] >> 4 << 6),
        *(mins[:4] | mins[4:] >> 4 << 6),
        *(scales[4:] & 15 | mins[4:] << 4 & 255),
    ]
    raw = np.concatenate(
        [np.array([0.25, 2.0], "<f2").view(np.uint8), np.array(small, np.uint8), np.full(128, 0x73, np.uint8)]
    )
    decoded = FORMATS["Q4_K"].decode(raw[None], 256).reshape(8, 32)
    for j in range(8):  # even groups are the low halves (3), odd groups the high halves (7)
        assert np.all(decoded[j] == 0.25 * scales[j] * (7 if j % 2 else 3) - 2.0 * mins[j])


# Root mean square error of unit normal values, in units of 2^-bits: a uniform code over 2 x 2.4 deviations has 1.4.
# More where the scale is a power of two, or one for so many values that most of them are far below the largest.
LOSE_MORE = {"MXFP4": 2.0, "TQ2_0": 1.9, "TQ1_0": 3.3, "Q1_0": 4.4}


@BLOCKS
def test_encoding_loses_no_more_than_the_type_must(f: Format):
    x = np.random.default_rng(5).standard_normal((64, 1024)).astype(np.float32)
    error = np.sqrt(np.mean((f.decode(f.encode(x), 1024) - x) ** 2, dtype=np.float64))
    assert 0.8 < error * 2**f.bits < LOSE_MORE.get(f.name, 1.6)


@pytest.mark.parametrize("f", [f for f in QUANTISED if f.codebook is not None], ids=lambda f: f.name)
def test_encoding_finds_the_nearest_entry_of_a_codebook(f: Format):
    x = np.random.default_rng(6).standard_normal((2, 256)).astype(np.float32)
    assert f.codebook is not None
    parts, entries = f.parts(f.encode(x)), f.codebook.entries().astype(np.float32)
    units = x / np.repeat(parts.scale, f.group, axis=1)
    if f.codebook.signed:  # signs are chosen first, and eight together may have to be even in number
        units, magnitudes = units * np.sign(parts.q), np.abs(parts.q)
        assert np.mean(units < 0) < (0.07 if f.codebook.even else 1e-9)
    else:
        magnitudes = parts.q
    runs, chosen = (y.reshape(-1, 1, entries.shape[1]) for y in (units, magnitudes))
    distance = np.sum((runs - entries) ** 2, -1)
    if f.codebook.shared > 1:  # those that lean the other way are not to be had
        distance[(chosen[:, :, 0] - entries[:, 0]) % 8 != 0] = np.inf
    assert np.allclose(np.sum((runs - chosen) ** 2, -1)[:, 0], distance.min(-1), rtol=1e-4, atol=1e-4)


def test_codebooks_ascend_and_have_as_many_entries_as_their_codes_name():
    counts = {"IQ2_XXS": 256, "IQ2_XS": 512, "IQ2_S": 1024, "IQ3_XXS": 256, "IQ3_S": 512, "IQ1_S": 4096, "IQ1_M": 4096}
    for name, count in counts.items():
        codebook = FORMATS[name].codebook
        assert codebook is not None and len(np.unique(codebook.entries(), axis=0)) == len(codebook.entries()) == count


@pytest.mark.parametrize("f", [f for f in FORMATS.values() if f.codebook is None], ids=lambda f: f.name)
@settings(max_examples=25)
@given(
    x=hnp.arrays(
        np.float32, (2, 256), elements=st.floats(-(2.0**9), 2.0**9, width=32, allow_subnormal=False), fill=st.just(0.0)
    )
)
def test_encoding_stays_within_a_step_of_its_group(f: Format, x: np.ndarray):
    y = f.decode(f.encode(x), 256)
    assert np.isfinite(y).all()
    if f.is_float:
        assert np.all(np.abs(y - x) <= np.abs(x) * 2.0**-8 + 2.0**-24)
        return
    blocks = x.reshape(-1, f.block)
    span = blocks.max(1) - np.minimum(blocks.min(1), 0) + np.maximum(-blocks.min(1), 0)  # of a whole block
    steps = span / ((1 << f.bits) - 1)
    small = span / 15 if f.scale_range == (0, 15) else span / 31 if f.scale_range == (-32, 31) else span / 63
    allowed = 1.01 * steps + (0 if f.scale_range is None else 1.1 * small) + span * 2.0**-9 + 2.0**-13
    assert np.all(np.abs(y - x).reshape(-1, f.block).max(1) <= allowed)


@ROWS
def test_zeros_stay_zero(f: Format):
    assert not f.decode(f.encode(np.zeros((2, 256), np.float32)), 256).any()


def test_bf16_rounds_to_nearest_even_and_keeps_nan():
    bf16 = FORMATS["BF16"]
    bits = np.array([[0x3F808000, 0x3F818000, 0x3F808001, 0x7F800001, 0xFF800000]], np.uint32)
    out = bf16.encode(bits.view(np.float32)).view("<u2")[0]
    assert [hex(v) for v in out[:3]] == ["0x3f80", "0x3f82", "0x3f81"]
    assert np.isnan(bf16.decode(out[3:4].view(np.uint8)[None], 1)[0, 0]) and out[4] == 0xFF80


@BLOCKS
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_values_without_a_scale_are_refused(f: Format, value: float):
    if f.name == "MXFP4" and value == 3e38:
        pytest.skip("powers of two of 8 bits reach that far")
    x = np.ones((1, 256), np.float32)
    x[0, 5] = value
    with pytest.raises(RequestError, match=f.name):
        f.encode(x)


@BLOCKS
def test_a_row_that_is_not_whole_blocks_is_refused_with_both_numbers(f: Format):
    with pytest.raises(FileError, match=rf"{f.block + 8}.*{f.block}"):
        f.row_bytes(f.block + 8)


@pytest.mark.parametrize(("number", "name"), [(9, "Q8_1"), (24, "I8"), (28, "F64"), (4, "unknown"), (10**9, "unknown")])
def test_another_type_is_refused_by_name(number: int, name: str):
    with pytest.raises(UnsupportedError, match=rf"^tensor 'x' has type {number} \({name}\)") as caught:
        format_of(number, "tensor 'x'")
    assert caught.value.facts == {"type": number, "type_name": name}


def test_the_type_numbers_lead_back_to_the_rows():
    assert [format_of(f.id, "") for f in FORMATS.values()] == list(FORMATS.values())
