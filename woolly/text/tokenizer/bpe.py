"""Byte pairs: text is cut into words by patterns, and in each word neighbours are joined in the order of the merges.

Two spellings. `gpt2`: a word is a row of bytes, each written as one printable character, so that every text has a
spelling; a byte without a token is dropped, as the models' own tokenizers do. `gemma4`: a word is text with spaces
written as U+2581, and a character without a token becomes the tokens of its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from woolly.errors import FileError, UnsupportedError, printable
from woolly.text.tokenizer.codec import SPACE, Codec, spell_spaced
from woolly.text.tokenizer.library import Library, Regex, check_words, models, no_panic, normalizers, pre_tokenizers
from woolly.text.tokenizer.patterns import PRE, Pre
from woolly.text.tokenizer.vocab import CONTROL, UNKNOWN, UNUSED, Vocab, read_merges


def _alphabet() -> dict[int, int]:
    """Characters and the bytes they stand for: printable Latin-1 for itself, the rest from U+0100 on."""
    printable_bytes = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable_bytes]
    return {b: b for b in printable_bytes} | {0x100 + i: b for i, b in enumerate(others)}


_BYTE_OF = _alphabet()
LETTERS = {byte: chr(letter) for letter, byte in _BYTE_OF.items()}
# Characters that stand for no byte are moved out of Latin-1, so that one `encode` fails on them.
_TO_LATIN = {c: 0xFFFF for c in range(256) if c not in _BYTE_OF} | _BYTE_OF


def build(vocab: Vocab, meta: Mapping[str, Any]) -> Codec:
    """The codec of a `gpt2` or `gemma4` file."""
    name = "gemma4" if vocab.model == "gemma4" else vocab.pre or "default"
    pre = PRE.get(name)
    if pre is None:
        near = get_close_matches(name, PRE, n=1)
        raise UnsupportedError(
            f"pre-tokenizer '{printable(name)}' is not known" + (f"; the nearest known is '{near[0]}'" if near else ""),
            suggestion="in Python, LLM(..., tokenizer=False) runs the model on token ids alone",
            pre=name,
        )
    library = _library(vocab, read_merges(meta), pre)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        with no_panic(texts):
            return [encoding.ids for encoding in library.encode_batch_fast(texts, add_special_tokens=False)]

    bos = pre.bos or vocab.model == "gemma4"
    return Codec(encode, spell_spaced if pre.spaced else spell_bytes, bos=bos, prefix=False)


def spell_bytes(token: str) -> bytes:
    """The bytes of a token whose characters each stand for one byte; any other token is its own text."""
    try:
        return token.translate(_TO_LATIN).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


def _library(vocab: Vocab, lines: Sequence[str], pre: Pre) -> Library:
    # Tokens that may never come from ordinary text are not among the words.
    words = dict(vocab.ids)
    for i in vocab.of_kind(CONTROL, UNKNOWN, UNUSED):
        del words[vocab.tokens[i]]
    library = Library(_model(words, lines, vocab.ids, pre))
    cuts: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(p), "isolated") for p in pre.patterns]
    if pre.spaced:
        library.normalizer = normalizers.Replace(" ", SPACE)
    else:
        cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    library.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    return library


def _model(words: dict[str, int], lines: Sequence[str], tokens: Mapping[str, int], pre: Pre) -> models.BPE:
    check_words(len(words) + len(lines))
    merges = cast("list[tuple[str, str]]", [tuple(line.split(" ", 1)) for line in lines])
    if all(map(words.__contains__, map("".join, merges))):
        try:
            return models.BPE(words, merges, ignore_merges=pre.ignore_merges, byte_fallback=pre.spaced)
        except Exception:
            pass  # a merge is wrong: only now it is worth the time to check each
    return models.BPE(words, _checked(lines, words, tokens), ignore_merges=pre.ignore_merges, byte_fallback=pre.spaced)


def _checked(lines: Sequence[str], words: Mapping[str, int], tokens: Mapping[str, int]) -> list[tuple[str, str]]:
    """The merges one by one; FileError names the first that cannot be right.

    Left out are merges that need or make a token that is no word: ordinary text would become a control token.
    """
    merges = []
    for i, line in enumerate(lines):
        at = line.find(" ", 1)  # the first part may be a space itself
        left, right = line[:at], line[at + 1 :]
        what = f"tokenizer.ggml.merges: merge {i} '{printable(line)}'"
        if at < 0 or not right:
            raise FileError(f"{what} is not two parts", index=i)
        parts = (left, right, left + right)
        for part in parts:
            if part not in tokens:
                raise FileError(f"{what} needs '{printable(part)}', which is not in the vocabulary", index=i)
        if all(part in words for part in parts):
            merges.append((left, right))
    return merges
