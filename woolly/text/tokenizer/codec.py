"""Codec: the interface between `Tokenizer` and each kind of vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how words write a space


@dataclass(frozen=True, slots=True)
class Codec:
    """One kind of tokenizer, built for one vocabulary. It knows nothing of special tokens.

    encode: the ids of each of several texts.
    spell: the bytes that an ordinary token stands for, from its text in the file.
    bos: whether a beginning token is added when the file does not say.
    prefix: whether a space goes before the first text and before each text that follows a special token.
    """

    encode: Callable[[Sequence[str]], list[list[int]]]
    spell: Callable[[str], bytes]
    bos: bool
    prefix: bool


def spell_spaced(token: str) -> bytes:
    """The bytes of a token that writes spaces as U+2581."""
    return token.replace(SPACE, " ").encode()
