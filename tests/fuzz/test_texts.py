"""Random texts come back as they were, by every kind of tokenizer; `make fuzz` takes a hundred thousand."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.texts import failures, lost_bytes, texts
from tests.text.small import bpe, spm
from woolly import gguf
from woolly.text import Tokenizer

SEED, COUNT = 1, 1000


def test_random_texts_come_back_from_byte_pairs_and_from_scored_words() -> None:
    assert failures(Tokenizer(bpe()), SEED, COUNT) == []
    assert failures(Tokenizer(spm()), SEED, COUNT) == []


def test_t21_random_texts_come_back_from_the_default_model_but_for_bytes_without_a_token(smollm2: Path) -> None:
    with gguf.open(smollm2) as file:
        tokenizer = Tokenizer(file.meta)
    assert lost_bytes(tokenizer) == bytes(
        [0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]
    )
    assert failures(tokenizer, SEED, COUNT) == []


def test_the_texts_are_of_many_kinds_and_repeat_by_seed() -> None:
    some = list(texts(SEED, COUNT))
    assert some == list(texts(SEED, COUNT))
    joined = set("".join(some))
    assert {"\0", "\u0301", "中", "🙂", "\u2028", "▁"} <= joined
    assert len(joined) > 1000
