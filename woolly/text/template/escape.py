"""Keeping what users write apart from what the template writes.

A template puts both into one text, and in that text `<|im_end|>` ends a message. So before rendering, every control
token that stands in a string of the request, also where it overlaps another, is broken by an escape character after its
first character; and a string that ends in the beginning of one, or begins with the end of one, or is the middle of one,
gets one on that side: strings, or a string and the template, cannot join to a token either. An escape character is a
noncharacter of Unicode that the request does not hold. After the special tokens are split off, it is removed
(`Tokenizer.encode_chat`): the user's text is encoded as it was written.

Templates compare roles, types and keys, and some write `<|` and `|>` around a role to make a token. So those stay as
they are as long as they are plain words, and a plain word never counts as the middle of a token.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from woolly.errors import RequestError
from woolly.io.cancellation import check

ESCAPES = tuple(map(chr, range(0xFDD0, 0xFDF0)))
_WORDS = ("role", "type")  # keys whose values templates compare
_PIECE = 64 << 10  # characters of a string that are looked at between two checks


class Escaper:
    """Escapes the control tokens of one vocabulary in the strings of a request."""

    def __init__(self, control: Iterable[str]) -> None:
        """control: texts of two characters or more."""
        self._tokens = _Texts(control)
        self._reversed = _Texts(text[::-1] for text in self._tokens.all)
        self._joined = "\n".join(self._tokens.all)

    def escape(self, request: Any, avoid: str = "") -> tuple[Any, str]:
        """The request with escape characters, and which one: a character that neither it nor `avoid` holds."""
        strings: set[str] = set()

        def collect(text: str) -> str:
            strings.add(text)
            return text

        _walk(request, collect)
        free = (m for m in ESCAPES if m not in self._joined and m not in avoid)
        escape = next((m for m in free if not any(m in s for s in strings)), "")
        if not escape:
            raise RequestError("the messages hold every noncharacter from U+FDD0 to U+FDEF", suggestion="remove one")
        escaped = {text: self._escaped(text, escape) for text in strings}
        return _walk(request, escaped.__getitem__), escape

    def _escaped(self, text: str, escape: str) -> str:
        check()
        text = "".join(self._broken(text, escape))
        longest = self._tokens.longest - 1
        if longest < 1 or not text:
            return text
        if len(text) <= longest and text in self._joined and not text.isidentifier():
            return escape + text + escape
        before = escape if self._reversed.begins_at_end_of(text[:longest][::-1]) else ""
        after = escape if self._tokens.begins_at_end_of(text[-longest:]) else ""
        return before + text + after

    def _broken(self, text: str, escape: str) -> Iterator[str]:
        """The text in pieces, each token broken; memory and time grow with the text alone."""
        for begin in range(0, len(text), _PIECE):
            check()
            piece = text[begin : begin + _PIECE]
            beyond = text[begin : begin + _PIECE + self._tokens.longest]
            places = [place + 1 for place in self._tokens.places(beyond) if place < len(piece)]
            yield escape.join(piece[a:b] for a, b in pairwise((0, *places, len(piece)))) if places else piece


class _Texts:
    """A set of texts, looked for in others.

    Where a text stands, so does the shortest that it begins with. None of these shortest ones begins with another, so
    at a place there is at most one of them: in their order, the last that does not come after what follows the place.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.all = sorted(set(texts))
        self.longest = max(map(len, self.all), default=0)
        self._shortest: list[str] = []
        for text in self.all:
            if not self._shortest or not text.startswith(self._shortest[-1]):
                self._shortest.append(text)
        letters = "".join(sorted({text[0] for text in self.all}))
        self._first = re.compile(f"[{re.escape(letters)}]" if letters else "(?!)")

    def places(self, text: str) -> Iterator[int]:
        """Where one of the texts begins, each place once, in order."""
        for match in self._first.finditer(text):
            ahead = text[match.start() : match.start() + self.longest]
            at = bisect_right(self._shortest, ahead)
            if at and ahead.startswith(self._shortest[at - 1]):
                yield match.start()

    def begins_at_end_of(self, text: str) -> bool:
        """Whether an end of this text is the beginning of one of the texts."""
        for match in self._first.finditer(text):
            end = text[match.start() :]
            at = bisect_left(self.all, end)
            if at < len(self.all) and self.all[at].startswith(end):
                return True
        return False


def _walk(value: Any, change: Callable[[str], str], word: bool = False) -> Any:
    """A copy with every string changed, except plain words where templates compare them."""
    if isinstance(value, str):
        return value if word and value.isidentifier() else change(value)
    if isinstance(value, Mapping):
        return {_walk(key, change, word=True): _walk(item, change, word=key in _WORDS) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, change) for item in value]
    return value
