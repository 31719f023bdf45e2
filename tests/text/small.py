"""Small tokenizers as metadata, for tests that need no file: every rule of the real ones, a few words each."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tiny import CHATML, byte_letters

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "e r", "a a", "aa aa", "Ġ Ġ", "l l", "he ll", "hell o"]


def bpe(merges: list[str] | None = None, special: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """Byte pairs: 256 bytes, the results of the merges, then special tokens with their kinds."""
    lines = MERGES if merges is None else merges
    added = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<think>": USER_DEFINED} if special is None else special
    words = list(dict.fromkeys(line.replace(" ", "", 1) if line[0] != " " else line for line in lines))
    tokens = [*byte_letters(), *words, *added]
    meta: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([1] * (len(tokens) - len(added)) + list(added.values()), np.int32),
        "tokenizer.ggml.merges": lines,
    }
    if special is None:
        meta |= {
            "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
            "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
            "tokenizer.chat_template": CHATML,
        }
    return meta | {f"tokenizer.ggml.{key}": value for key, value in more.items()}


WORDS = {
    "▁": -1.0,
    "▁h": -2.5,
    "he": -2.0,
    "ll": -3.0,
    "hell": -6.0,
    "▁hell": -5.0,
    "▁hello": -4.0,
    "lo": -3.5,
    "é": -9.0,
}


def spm(words: dict[str, float] | None = None, special: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """Scored words: <unk>, <s>, </s>, 256 bytes, letters, words, then special tokens with their kinds."""
    scored = {letter: -100.0 - i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}
    scored |= WORDS if words is None else words
    added = {"<tool>": USER_DEFINED} if special is None else special
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *scored, *added]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(scored) + list(added.values())
    scores = [0.0] * 259 + list(scored.values()) + [0.0] * len(added)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    } | {f"tokenizer.ggml.{key}": value for key, value in more.items()}


def bert() -> dict[str, Any]:
    """Word pieces."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "▁wor", "ld", "▁!", "▁w", "▁a", "b"]
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3] * 4 + [1] * 7, np.int32),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
    }
