"""The fewest tokens of a text: never more than it has, and close where one token is repeated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.texts import ALPHABETS, WORDS
from tests.text.small import CONTROL, bert, bpe, byte_letters, spm
from tests.text.test_tokenizer import gemma
from woolly.text import Tokenizer


def without_bytes(meta: dict[str, Any], *lost: int) -> dict[str, Any]:
    """A vocabulary whose tokens of some bytes have another text."""
    tokens = list(meta["tokenizer.ggml.tokens"])
    for byte in lost:
        tokens[tokens.index(byte_letters()[byte])] = f"<lost {byte}>"
    return meta | {"tokenizer.ggml.tokens": tokens}


GREEDY = spm(special={"<|user|>": CONTROL}) | {"general.architecture": "phi3"}
TOKENIZERS = {
    "bpe": Tokenizer(bpe()),
    "bpe without some bytes": Tokenizer(without_bytes(bpe(), 0x04, 0xC3, 0xF0)),
    "spm": Tokenizer(spm()),
    "greedy": Tokenizer(GREEDY),
    "gemma": Tokenizer(gemma()),
    "bert": Tokenizer(bert()),
}
SIGNS = sorted({sign for signs in ALPHABETS for sign in signs})
PIECES = st.sampled_from([*WORDS, *SIGNS, "hello", "aaaa", "<|user|>", "\u2581"])


@settings(max_examples=50)
@pytest.mark.parametrize("name", TOKENIZERS)
@given(pieces=st.lists(st.tuples(PIECES, st.integers(1, 40))))
def test_a_text_has_at_least_its_fewest_tokens(name: str, pieces: list[tuple[str, int]]) -> None:
    tokenizer, text = TOKENIZERS[name], "".join(piece * count for piece, count in pieces)
    for special in (True, False):
        assert tokenizer.fewest(text) <= len(tokenizer.encode(text, special=special))


@pytest.mark.parametrize(
    ("name", "text", "fewest"),
    [
        ("bpe", "<|im_start|>" * 50, 50),  # the longest there is
        ("bpe", "x" * 24, 2),
        ("bpe", "x" * 25, 3),
        ("bpe", "", 0),
        ("bpe without some bytes", "\x04" * 1000, 0),
        ("bpe without some bytes", "é" * 12, 1),  # of its two bytes one is left
        ("spm", "x" * 60, 10),
        ("spm", "\u2581" * 60, 10),
        ("greedy", "<|user|>" + " " * 1000, 1),
        ("gemma", "x" * 60, 10),  # "<0x00>" could stand in a text
        ("bert", "x" * 1000, 0),
        ("bert", " " * 1000, 0),
    ],
)
def test_the_fewest_tokens_are_told_from_the_bytes_that_become_some(name: str, text: str, fewest: int) -> None:
    assert TOKENIZERS[name].fewest(text) == fewest


def test_nothing_is_told_where_a_character_may_vanish() -> None:
    meta = gemma()
    tokens = list(meta["tokenizer.ggml.tokens"])
    tokens[2] = "zz"  # instead of <0x00>
    kinds = meta["tokenizer.ggml.token_type"].copy()
    kinds[2] = 1
    tokenizer = Tokenizer(meta | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds})
    assert tokenizer.encode("\0" * 1000) == []
    assert tokenizer.fewest("\0" * 1000) == 0
