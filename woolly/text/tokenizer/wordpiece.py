"""Word pieces (`bert`): lower-case words, each cut into the longest tokens from the left.

In the file a token that begins a word has U+2581 before it; the library marks the others, with `##`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from woolly.errors import FileError, UnsupportedError, printable
from woolly.text.tokenizer.codec import SPACE, Codec, spell_spaced
from woolly.text.tokenizer.library import Library, check_words, models, no_panic, normalizers, pre_tokenizers
from woolly.text.tokenizer.vocab import CONTROL, UNKNOWN, UNUSED, Vocab

_PRE = ("", "default", "bert-bge", "jina-v2-en")
_LONGEST = 100  # characters of one word; longer ones are unknown, as in the models' own tokenizers


def build(vocab: Vocab, meta: Mapping[str, Any]) -> Codec:
    """The codec of a `bert` file."""
    if vocab.pre not in _PRE:
        raise UnsupportedError(
            f"pre-tokenizer '{printable(vocab.pre)}' is not known for a 'bert' tokenizer", pre=vocab.pre
        )
    if vocab.unknown is None:
        raise FileError("tokenizer.ggml.unknown_token_id is missing", suggestion="a 'bert' tokenizer needs one")
    hidden = set(vocab.of_kind(CONTROL, UNKNOWN, UNUSED))
    words = {
        (token[1:] if token[0] == SPACE else "##" + token): i for i, token in enumerate(vocab.tokens) if i not in hidden
    }
    # A text that no word has: words are cut at punctuation and hold no spaces.
    unknown = " "
    words[unknown] = vocab.unknown
    check_words(len(words))
    library = Library(models.WordPiece(words, unk_token=unknown, max_input_chars_per_word=_LONGEST))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(texts: Sequence[str]) -> list[list[int]]:
        with no_panic(texts):
            return [encoding.ids for encoding in library.encode_batch_fast(texts, add_special_tokens=False)]

    return Codec(encode, spell_spaced, bos=vocab.bos is not None, prefix=True)
