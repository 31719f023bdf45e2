"""Scored words: the compiled joining against its definition, and the rules around it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.small import USER_DEFINED, spm
from tests.text.test_golden import FOLDER, needs_vocabs
from woolly import gguf
from woolly._core import Spm
from woolly.text import Tokenizer

pytestmark = pytest.mark.native
SPM = Tokenizer(spm())


def words(tokenizer: Tokenizer, text: str, **options: Any) -> list[str]:
    return [tokenizer.text_of(i) for i in tokenizer.encode(text, **options)]


def joined(text: str, scores: dict[str, float]) -> list[str]:
    """The definition: join the neighbours with the best score, of equal ones the leftmost, until none is left."""
    parts = list(text)
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            return parts
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def core(scores: dict[str, float], unknown: int = -1, first_byte: int = 1000) -> Spm:
    """Words numbered from 0, bytes from `first_byte` on, or none if that is -1."""
    table = np.arange(first_byte, first_byte + 256) if first_byte >= 0 else np.full(256, -1)
    texts = [word.encode() for word in scores]
    values = np.array(list(scores.values()), np.float32)
    return Spm(texts, np.arange(len(texts), dtype=np.int32), values, table.astype(np.int32), unknown)


@given(st.dictionaries(st.text("abé🙂", min_size=1, max_size=5), st.integers(-9, 9)), st.text("abcé🙂", max_size=40))
def test_the_best_neighbours_are_joined_first_and_of_equal_ones_the_leftmost(
    scores: dict[str, float], text: str
) -> None:
    ids = {word: i for i, word in enumerate(scores)}
    expected: list[int] = []
    for part in joined(text, scores):
        expected += [ids[part]] if part in ids else [1000 + b for b in part.encode()]
    assert core(scores).encode(text.encode()).tolist() == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_taken(data: bytes) -> None:
    ids = core({"a": 0.0, "ab": 1.0}).encode(data).tolist()
    spelled = b"".join({0: b"a", 1: b"ab"}.get(i) or bytes([i - 1000]) for i in ids)
    assert spelled == data


def test_a_character_without_word_and_bytes_is_unknown_or_nothing() -> None:
    assert core({"a": 0.0}, unknown=7, first_byte=-1).encode("aé🙂a".encode()).tolist() == [0, 7, 7, 0]
    assert core({"a": 0.0}, unknown=-1, first_byte=-1).encode("aé🙂a".encode()).tolist() == [0, 0]
    assert core({}).encode(b"").tolist() == []


def test_wrong_lengths_are_refused() -> None:
    one = np.zeros(1, np.int32)
    with pytest.raises(Exception, match="length"):
        Spm([b"a", b"b"], one, np.zeros(1, np.float32), np.zeros(256, np.int32), -1)
    with pytest.raises(Exception, match="256"):
        Spm([b"a"], one, np.zeros(1, np.float32), np.zeros(255, np.int32), -1)


def test_a_space_goes_before_the_first_text_and_after_each_special_token() -> None:
    assert words(SPM, "hello") == ["▁hello"]
    assert words(SPM, "hello hello") == ["▁hello", "▁hello"]
    assert words(SPM, "<s>hello</s>he", special=True) == ["<s>", "▁hello", "</s>", "▁", "he"]
    assert words(SPM, "he<tool>he") == ["▁", "he", "<tool>", "▁", "he"]
    assert SPM.decode(SPM.encode("he<tool>he<s> he", special=True)) == "he<tool>he he"


def test_no_space_is_added_where_the_file_forbids_it() -> None:
    tokenizer = Tokenizer(spm(add_space_prefix=False))
    assert words(tokenizer, "hello") == ["hell", "o"]
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"


def test_control_unknown_and_byte_tokens_never_come_from_text() -> None:
    special = {"he": 2, "ll": 3, "lo": 5, "<tool>": USER_DEFINED}
    tokenizer = Tokenizer(spm(words={"▁": -1.0}, special=special))
    assert words(tokenizer, "hello") == ["▁", "h", "e", "l", "l", "o"]
    assert words(tokenizer, "<0x41><unk>") == [
        "▁",
        *spelled("<"),
        *spelled("0"),
        "x",
        *spelled("41><"),
        *"unk",
        *spelled(">"),
    ]


def spelled(text: str) -> list[str]:
    return [f"<0x{b:02X}>" for b in text.encode()]


def test_scores_that_are_missing_are_asked_for() -> None:
    meta = spm()
    del meta["tokenizer.ggml.scores"]
    with pytest.raises(Exception, match=r"scores is missing"):
        Tokenizer(meta)


@cache
def llama() -> tuple[Tokenizer, Any]:
    """A real vocabulary, and the library's nearest model of it: byte pairs, a merge for every cut of every word."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    with gguf.open(FOLDER / "ggml-vocab-llama-spm.gguf") as file:
        meta: Mapping[str, Any] = file.meta
        tokens, kinds, scores = (meta[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "scores"))
        tokenizer = Tokenizer(file.meta)
    ids = {token: i for i, token in enumerate(tokens) if kinds[i] in (1, 6)}
    cuts = [
        (-scores[i], i, cut, word)
        for word, i in ids.items()
        for cut in range(1, len(word))
        if kinds[i] == 1 and word[:cut] in ids and word[cut:] in ids
    ]
    merges = [(word[:cut], word[cut:]) for _, _, cut, word in sorted(cuts)]
    return tokenizer, Library(models.BPE(ids, merges, byte_fallback=True, fuse_unk=False))


@needs_vocabs
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.text("the of and in ▁<>0x\n", max_size=80))
def test_a_real_vocabulary_agrees_with_the_librarys_nearest_model(text: str) -> None:
    tokenizer, library = llama()
    (oracle,) = library.encode_batch_fast(["▁" + text.replace(" ", "▁")], add_special_tokens=False)
    assert tokenizer.encode(text) == (oracle.ids if text else [])
