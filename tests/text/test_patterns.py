"""The patterns that stand in the place of those in the models' files cut the same words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from woolly.text.tokenizer.library import Regex, pre_tokenizers
from woolly.text.tokenizer.patterns import PRE

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))

# The patterns as the files of these models have them.
FILES = {
    "smollm": (r"\p{N}", _GPT2),
    "cohere2moe": (r"\d{1,3}(?=(?:\d{3})*\b)", *PRE["gpt-4o"].patterns),
    "jais-2": (PRE["dbrx"].patterns[0].replace(r"\s+(?!\S)|\s+", _SPACES + r"|\s{1}"),),
}

PIECES = [
    *(
        "1",
        "2",
        "1234",
        "12345678",
        "\u0663",
        "\u00b2",
        "\u00bd",
        "\u2167",
        "\U0001d7ce",
        "_",
        "-",
        ".",
        "'s",
        "'",
        "!",
        "/",
    ),
    *("a", "B", "\u00e9", "\u0301", "\u4e2d", " ", "  ", "    ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\u3000"),
    *(" " * n for n in (7, 63, 130, 513, 1100)),
]


def cut(patterns: tuple[str, ...], text: str) -> list[str]:
    cuts = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
    return [word for word, _ in cuts.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", FILES)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_words_are_those_of_the_models_own_patterns(name: str, text: str) -> None:
    assert cut(PRE[name].patterns, text) == cut(FILES[name], text)


def test_digits_are_grouped_from_the_right_where_the_file_says_so() -> None:
    assert cut(PRE["tiny_aya"].patterns, "1234567 12 1234x") == ["1", "234", "567", " ", "12", " ", "123", "4", "x"]


def test_spaces_are_cut_to_powers_of_two_where_the_file_says_so() -> None:
    assert [len(word) for word in cut(PRE["jais-2"].patterns, " " * 600)] == [512, 64, 16, 8]
    assert cut(PRE["jais-2"].patterns, "a" + " " * 8 + "b\n") == ["a", " " * 4, " " * 2, " ", " b", "\n"]
    assert cut(PRE["jais-2"].patterns, " " * 6 + "\n!\n") == [" " * 6 + "\n", "!\n"]
