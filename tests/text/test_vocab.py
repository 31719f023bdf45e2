"""Files that lie about their tokenizer are refused with the key, the place and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.text.small import BYTE, bpe, spm
from woolly.errors import FileError
from woolly.text import Tokenizer

VOCAB = len(bpe()["tokenizer.ggml.tokens"])


def with_token(index: int, token: str, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    changed = dict(meta or bpe(merges=[]))
    changed["tokenizer.ggml.tokens"] = list(changed["tokenizer.ggml.tokens"])
    changed["tokenizer.ggml.tokens"][index] = token
    return changed


def with_merges(*lines: str) -> dict[str, Any]:
    meta = bpe()
    return meta | {"tokenizer.ggml.merges": [*meta["tokenizer.ggml.merges"], *lines]}


def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in bpe().items() if k != f"tokenizer.ggml.{key}"}


KINDS = np.ones(VOCAB, np.int32)
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": (without("tokens"), "tokens is missing"),
    "zero tokens": (bpe() | {"tokenizer.ggml.tokens": []}, "tokens is missing or empty"),
    "tokens are numbers": (bpe(tokens=np.arange(3)), "tokens is a ndarray, expected a list of texts"),
    "a token twice": (with_token(7, "a"), "token 7 'a' is also token 97"),
    "an empty token": (with_token(7, ""), "token 7 is empty"),
    "a token that is no UTF-8": (with_token(7, "\udcff"), "token 7 is not UTF-8"),
    "a token too long": (with_token(7, "x" * 65_536), "token 7 is longer than 65,535 bytes"),
    "few kinds": (bpe(token_type=KINDS[:9]), f"9 entries for {VOCAB} tokens"),
    "kinds of 8 bits": (bpe(token_type=KINDS.astype(np.uint8)), "holds uint8, expected int32"),
    "kinds of 64 bits": (bpe(token_type=KINDS.astype(np.int64)), "holds int64, expected int32"),
    "kind 0": (bpe(token_type=KINDS * 0), "token 0 has kind 0, expected 1 to 6"),
    "kind 2147483647": (bpe(token_type=KINDS * (2**31 - 1)), "token 0 has kind 2147483647"),
    "kinds are text": (bpe(token_type="x"), "token_type is text, expected a list of numbers"),
    "few scores": (bpe(scores=np.zeros(3, np.float32)), f"3 entries for {VOCAB} tokens"),
    "scores of 64 bits": (bpe(scores=np.zeros(VOCAB)), "holds float64, expected float32"),
    "a score that is no number": (bpe(scores=np.full(VOCAB, np.nan, np.float32)), "score of token 0 is nan"),
    "bos too large": (bpe(bos_token_id=VOCAB), f"bos_token_id is {VOCAB}, but the vocabulary has {VOCAB} tokens"),
    "eos far too large": (bpe(eos_token_id=2**31 - 1), "eos_token_id is 2147483647"),
    "eos negative": (bpe(eos_token_id=-7), "eos_token_id is -7"),
    "eot too large": (bpe(eot_token_id=VOCAB), "eot_token_id"),
    "unknown too large": (bpe(unknown_token_id=VOCAB), "unknown_token_id"),
    "eos is text": (bpe(eos_token_id="2"), "eos_token_id is text, expected a whole number"),
    "add_bos_token is a number": (bpe(add_bos_token=1), "add_bos_token is a whole number, expected true or false"),
    "add_bos_token without one": (bpe(special={}, add_bos_token=True), "names no beginning token"),
    "model is a flag": (bpe(model=True), "tokenizer.ggml.model is true or false, expected text"),
    "no merges": (without("merges"), "merges is missing"),
    "merges are numbers": (bpe() | {"tokenizer.ggml.merges": np.arange(2)}, "merges is a ndarray"),
    "a merge without space": (with_merges("th"), "merge 11 'th' is not two parts"),
    "an empty merge": (with_merges(""), "merge 11 '' is not two parts"),
    "a merge of a space": (with_merges(" "), "merge 11 ' ' is not two parts"),
    "a merge without left part": (with_merges(" x"), "merge 11 ' x' is not two parts"),
    "a merge of three parts": (with_merges("a b c"), "merge 11 'a b c' needs 'b c'"),
    "a merge of unknown parts": (with_merges("qqqq zzzz"), "merge 11 'qqqq zzzz' needs 'qqqq', which is not in"),
    "a merge with unknown result": (with_merges("q z"), "merge 11 'q z' needs 'qz'"),
    "a merge twice": (with_merges("h e"), "merge 11 'h e' is there twice"),
    "byte token <0x-1>": (with_token(9, "<0x-1>", spm()), "byte token 9 reads '<0x-1>', expected <0x00> to <0xFF>"),
    "byte token <0xZZ>": (with_token(9, "<0xZZ>", spm()), "byte token 9 reads '<0xZZ>'"),
    "byte token <0x100>": (with_token(9, "<0x100>", spm()), "byte token 9 reads '<0x100>'"),
    "a word that is a byte token": (bpe(token_type=KINDS * BYTE), "byte token 0 reads"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_is_refused_with_its_reason(name: str) -> None:
    meta, reason = BROKEN[name]
    with pytest.raises(FileError) as caught:
        Tokenizer(meta)
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()


RIGHT: dict[str, dict[str, Any]] = {
    "no kinds": without("token_type"),
    "no merges in the list": bpe(merges=[]),
    "bos 4294967295 means none": bpe(bos_token_id=2**32 - 1),
    "padding beyond the vocabulary, which nobody reads": bpe(padding_token_id=VOCAB),
    "a byte without a token": with_token(4, "<|gone|>"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_odd_but_right_files_are_taken(name: str) -> None:
    tokenizer = Tokenizer(RIGHT[name])
    assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


def test_terminal_escapes_in_a_token_do_not_reach_the_message() -> None:
    meta = with_token(8, "\x1b[31m", with_token(7, "\x1b[31m"))
    with pytest.raises(FileError) as caught:
        Tokenizer(meta)
    assert r"\x1b[31m" in str(caught.value)
