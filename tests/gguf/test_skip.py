"""The native walk over strings: it stops at the first one that is too long or passes the end of the data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gguf.forge import text
from woolly import _core

pytestmark = pytest.mark.native


def walk(data: bytes, offset: int, count: int, longest: int) -> tuple[int, int]:
    for i in range(count):
        length = int.from_bytes(data[offset : offset + 8], "little")
        if len(data) - offset < 8 or length > longest or length > len(data) - offset - 8:
            return offset, i
        offset += 8 + length
    return offset, count


@given(
    strings=st.lists(st.binary(max_size=12), max_size=8),
    cut=st.integers(0, 40),
    before=st.binary(max_size=5),
    more=st.integers(-1, 2),
    longest=st.integers(0, 12),
)
def test_the_walk_ends_where_a_careful_reader_would(strings, cut, before, more, longest):
    data = before + b"".join(map(text, strings))
    data = data[: max(len(before), len(data) - cut)]
    count = max(0, len(strings) + more)
    assert _core.skip_strings(memoryview(data), len(before), count, longest) == walk(data, len(before), count, longest)


@pytest.mark.parametrize("length", [9, 2**31, 2**32, 2**63, 2**64 - 8, 2**64 - 1])
def test_no_length_makes_the_end_wrap(length: int):
    data = text(b"first") + text(b"12345678", length)
    assert _core.skip_strings(memoryview(data), 0, 2, 2**64 - 1) == (13, 1)


def test_a_count_of_2_to_the_64_ends_with_the_data():
    data = text(b"") * 5 + b"\0" * 7
    assert _core.skip_strings(memoryview(data), 0, 2**64 - 1, 9) == (40, 5)


def test_an_offset_behind_the_data_is_refused():
    assert _core.skip_strings(memoryview(b"abc"), 3, 1, 9) == (3, 0)
    with pytest.raises(Exception, match="offset beyond"):
        _core.skip_strings(memoryview(b"abc"), 4, 1, 9)
