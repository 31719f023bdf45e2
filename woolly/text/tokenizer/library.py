"""The `tokenizers` library, imported in one place so that the rules for its use stand in one place.

It is called with whole batches only: calls for batches let other threads run, all others block them for the whole text.
Its own thread pool stays off, since it would fight ours for the same cores; the variable must be set before the import.
An error deep in its compiled code arrives as an exception that is no `Exception`: `no_panic` makes a `RequestError` of
it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from woolly.errors import RequestError, printable

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

__all__ = ["AddedToken", "Library", "Regex", "models", "no_panic", "normalizers", "pre_tokenizers"]


@contextmanager
def no_panic() -> Iterator[None]:
    """Turns a failure inside the library into a RequestError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RequestError(f"the text cannot be tokenized: {printable(error)}", suggestion="shorten it") from None
