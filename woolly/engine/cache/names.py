"""The names of pages: digests of all that their rows, and those before them, were made of.

Most rows are made of token ids. Those of features are made of something else, and the ids at their positions are equal
for all: a name covers the digests of the features that begin in its page, and by its parent those that began before.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from woolly.engine.features import Features


def first_parent(salt: bytes) -> bytes:
    """The digest that stands in for a page before the first page of a sequence."""
    return blake2b(salt, digest_size=16).digest()


def page_name(parent: bytes, tokens: Sequence[int], features: Sequence[Features] = ()) -> bytes:
    """The digest of a whole page: of the digest of the page before it, its own tokens, and the features that begin in
    it."""
    named = blake2b(parent + array("i", tokens).tobytes(), digest_size=16)
    for one in features:
        named.update(struct.pack("<III", one.first, one.count, len(one.digest)) + one.digest)
    return named.digest()


def page_names(salt: bytes, tokens: Sequence[int], size: int, features: Sequence[Features] = ()) -> list[bytes]:
    """The digests of all full pages of a text, for a process that has the text and not the pages."""
    names, parent = [], first_parent(salt)
    for first in range(0, len(tokens) - size + 1, size):
        parent = page_name(parent, tokens[first : first + size], begin_in(features, first, first + size))
        names.append(parent)
    return names


def begin_in(features: Sequence[Features], first: int, end: int) -> Sequence[Features]:
    """The features that begin at these positions."""
    return [one for one in features if first <= one.first < end] if features else ()
