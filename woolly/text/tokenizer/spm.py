"""Scored words (`llama`): neighbours whose joined text is a word are joined, the best score first.

The joining itself is compiled (`_core.Spm`); the library has no such model. Spaces are written as U+2581; a character
that is part of no word becomes the tokens of its bytes, or the unknown token where the file has none for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from woolly.errors import FileError
from woolly.text.tokenizer.codec import SPACE, Codec, spell_spaced
from woolly.text.tokenizer.vocab import BYTE, NORMAL, USER_DEFINED, Vocab, byte_of


def build(vocab: Vocab, meta: Mapping[str, Any]) -> Codec:
    """The codec of a `llama` file."""
    import numpy as np

    from woolly._core import Spm

    if vocab.scores is None:
        raise FileError(
            "tokenizer.ggml.scores is missing", suggestion="a 'llama' tokenizer needs a score for each token"
        )
    bytes_ids = np.full(256, -1, dtype=np.int32)
    for i in vocab.of_kind(BYTE):
        bytes_ids[byte_of(vocab.tokens[i])] = i
    ids = np.array(vocab.of_kind(NORMAL, USER_DEFINED), dtype=np.int32)
    words = [vocab.tokens[i].encode() for i in ids.tolist()]
    native = Spm(words, ids, vocab.scores[ids], bytes_ids, -1 if vocab.unknown is None else vocab.unknown)

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [native.encode(text.replace(" ", SPACE).encode()).tolist() for text in texts]

    prefix = vocab.add_space_prefix is not False
    return Codec(encode, spell_spaced, bos=vocab.bos is not None, prefix=prefix)
