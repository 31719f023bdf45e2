"""Markdown in blocks, while it is still coming."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from woolly.cli.chat.blocks import Blocks


def blocks(text: str, size: int) -> list[str]:
    cut = Blocks()
    pieces = [block for i in range(0, len(text), size) for block in cut.feed(text[i : i + size])]
    return pieces + cut.flush()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\n\nthree", ["one\ntwo", "three"]),
        ("```py\na\n\nb\n```\nafter", ["```py\na\n\nb\n```", "after"]),
        ("before\n```\na\n```\n", ["before", "```\na\n```"]),
        ("~~~\n```\n~~~\nx", ["~~~\n```\n~~~", "x"]),
        ("````\n```\n````\nx", ["````\n```\n````", "x"]),
        ("- a\n\n  more of a\n\nafter", ["- a\n\n  more of a\n", "after"]),
        (
            "1. a\n\n   ```\n   x\n\n   y\n   ```\n2. b\n\nafter",
            ["1. a\n\n   ```\n   x\n\n   y\n   ```\n2. b\n", "after"],
        ),
        ("```\nnever closed\n\n", ["```\nnever closed\n"]),
        ("\n \n", []),
        ("a ```b``` c\n\nd", ["a ```b``` c", "d"]),
    ],
)
def test_a_block_ends_at_a_blank_line_or_with_its_fence(text: str, expected: list[str]) -> None:
    for size in (1, 2, 5, 100):
        assert blocks(text, size) == expected


@given(st.text(alphabet="ab `~-1.\n", max_size=60), st.integers(1, 9))
def test_no_letter_is_lost_between_blocks(text: str, size: int) -> None:
    assert "".join("".join(blocks(text, size)).split()) == "".join(text.split())
