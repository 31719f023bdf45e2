"""The search for NaN and infinity in weights: the compiled one agrees with decoding in NumPy, in every format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import woolly._core as _core
from woolly.gguf.tensor_types import FORMATS
from woolly.gguf.tensor_types.blocks import Floats

pytestmark = pytest.mark.native


def find(name: str, raw: bytes) -> int:
    floats = FORMATS[name].floats
    return _core.find_not_finite(memoryview(raw), FORMATS[name].nbytes, floats.places, floats.width, floats.exponent)


@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_are_judged_as_their_decoded_values_are(name: str) -> None:
    rng = np.random.default_rng(3)
    row = FORMATS[name]
    calm = np.frombuffer(rng.bytes(40 * row.nbytes), np.uint8).reshape(40, row.nbytes).copy()
    seen = set()
    for block in calm:
        # Codes and small scales of 0 would hide a NaN scale in the decoded weights: only the floats count.
        with np.errstate(all="ignore"):
            parts = row.decode(block[None], row.block) if row.is_float else row.parts(block[None])
            values = (
                parts
                if row.is_float
                else np.concatenate(
                    [parts.scale.ravel(), (parts.least if parts.least is not None else parts.scale).ravel()]
                )
            )
        bad = not np.isfinite(values).all()
        seen.add(bad)
        assert (find(name, block.tobytes()) >= 0) == bad
    assert False in seen


@pytest.mark.parametrize("name", FORMATS)
def test_the_first_one_is_told_with_its_place(name: str) -> None:
    row, floats = FORMATS[name], FORMATS[name].floats
    raw = bytearray(9000 * row.nbytes)
    assert find(name, raw) == -1
    if not floats.places:
        assert name == "NVFP4"  # every byte of a scale is a number
        return
    for block, place in ((8999, floats.places[-1]), (5000, floats.places[0]), (0, floats.places[-1])):
        at = block * row.nbytes + place
        raw[at : at + floats.width] = floats.exponent.to_bytes(floats.width, "little")
        assert find(name, raw) == at


def test_the_places_of_the_floats_cover_scales_and_minima() -> None:
    assert FORMATS["Q4_K"].floats.places == (0, 2)
    assert FORMATS["Q2_K"].floats.places == (80, 82)
    assert FORMATS["Q6_K"].floats.places == (208,)
    assert FORMATS["BF16"].floats.exponent == 0x7F80
    assert FORMATS["MXFP4"].floats == Floats((0,), 1, 0xFF)
    assert FORMATS["IQ1_M"].floats == Floats((52,), 4, 0x7000C000)  # the exponent of an f16, four bits in each word


@given(
    st.binary(max_size=200),
    st.integers(0, 40),
    st.lists(st.integers(-3, 40), max_size=3),
    st.sampled_from([1, 2, 4, 8]),
)
def test_what_does_not_lie_inside_whole_blocks_is_refused(raw: bytes, size: int, places: list[int], width: int) -> None:
    sound = width in (1, 2, 4) and size > 0 and len(raw) % size == 0 and all(0 <= p <= size - width for p in places)
    try:
        _core.find_not_finite(memoryview(raw), size, places, width, 0x7C00)
        assert sound
    except _core.CoreError:
        assert not sound
