"""The `tokenizers` library, imported in one place so that the rules for its use stand in one place.

It is called with whole batches only: calls for batches let other threads run, all others block them for the whole text.
Its own thread pool stays off, since it would fight ours for the same cores; the variable must be set before the import.
An error deep in its compiled code arrives as an exception that is no `Exception`: `no_panic` makes a `RequestError` of
it. Where it finds no memory it ends the whole process: `no_panic` and `check_words` look for that before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from woolly.errors import RequestError, printable
from woolly.system import check_room

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

ROOM, EACH = 1 << 20, 128  # bytes that reading texts takes, and for each character
WORD = 512  # bytes for each word and each merge of a vocabulary

__all__ = ["AddedToken", "Library", "Regex", "check_words", "models", "no_panic", "normalizers", "pre_tokenizers"]


def check_words(count: int) -> None:
    """MemoryError where there is no room for a vocabulary of so many words and merges."""
    check_room(ROOM + WORD * count)


@contextmanager
def no_panic(texts: Sequence[str] = ()) -> Iterator[None]:
    """Turns a failure inside the library into a RequestError; MemoryError where there is no room to read the texts."""
    check_room(ROOM + EACH * sum(map(len, texts)))
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RequestError(f"the text cannot be tokenized: {printable(error)}", suggestion="shorten it") from None
