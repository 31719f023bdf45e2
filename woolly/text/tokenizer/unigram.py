"""Pieces with the logarithms of their likelihood (`t5`): of all ways to cut a text the likeliest.

Characters are first replaced by a table of the file (charsmap.py). Then spaces at both ends go, runs of them become
one, and all are written as U+2581.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from woolly.errors import FileError
from woolly.text.tokenizer.charsmap import KEY, replacing
from woolly.text.tokenizer.codec import SPACE, Codec, spell_spaced
from woolly.text.tokenizer.library import Library, check_words, models, no_panic
from woolly.text.tokenizer.vocab import CONTROL, UNKNOWN, Vocab, flag_value

_SPACES = re.compile(" {2,}")


def build(vocab: Vocab, meta: Mapping[str, Any]) -> Codec:
    """The codec of a `t5` file."""
    if vocab.scores is None:
        raise FileError("tokenizer.ggml.scores is missing", suggestion="a 't5' tokenizer needs a score for each token")
    if vocab.unknown is None:
        raise FileError("tokenizer.ggml.unknown_token_id is missing", suggestion="a 't5' tokenizer needs one")
    hidden = set(vocab.of_kind(CONTROL, UNKNOWN))
    # A token that is no word gets a text that cannot occur: words hold no space.
    words = [
        (f" {i}" if i in hidden else token, score)
        for i, (token, score) in enumerate(zip(vocab.tokens, vocab.scores.tolist(), strict=True))
    ]
    check_words(len(words))
    library = Library(models.Unigram(words, unk_id=vocab.unknown, byte_fallback=False))
    replaced = replacing(_table(meta)) if KEY in meta else str
    squeezed = flag_value(meta, "remove_extra_whitespaces") is not False
    begins = " " if vocab.add_space_prefix is not False else ""

    def normal(text: str) -> str:
        text = replaced(text)
        if squeezed:
            text = _SPACES.sub(" ", text.strip(" "))
        return (begins + text).replace(" ", SPACE) if text else ""

    def encode(texts: Sequence[str]) -> list[list[int]]:
        with no_panic(texts):
            return [
                encoding.ids
                for encoding in library.encode_batch_fast(list(map(normal, texts)), add_special_tokens=False)
            ]

    return Codec(encode, spell_spaced, bos=vocab.bos is not None, prefix=False)


def _table(meta: Mapping[str, Any]) -> bytes:
    import numpy as np

    value = meta[KEY]
    if not isinstance(value, np.ndarray) or value.dtype.itemsize != 1:
        raise FileError(f"{KEY} is no list of bytes", key=KEY)
    return value.tobytes()
