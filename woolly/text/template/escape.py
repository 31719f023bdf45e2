"""Keeping what users write apart from what the template writes.

A template puts both into one text, and in that text `<|im_end|>` ends a message. So before rendering, every control
token that stands in a string of the request is broken by an escape character after its first character; and a string
that ends in the beginning of one, or begins with the end of one, or is the middle of one, gets one on that side:
strings, or a string and the template, cannot join to a token either. An escape character is a noncharacter of Unicode
that the request does not hold. After the special tokens are split off, it is removed (`Tokenizer.encode_chat`): the
user's text is encoded as it was written.

Templates compare roles, types and keys, and some write `<|` and `|>` around a role to make a token. So those stay as
they are as long as they are plain words, and a plain word never counts as the middle of a token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from woolly.errors import RequestError
from woolly.text.tokenizer.special import Splitter

ESCAPES = tuple(map(chr, range(0xFDD0, 0xFDF0)))
_WORDS = ("role", "type")  # keys whose values templates compare


class Escaper:
    """Escapes the control tokens of one vocabulary in the strings of a request."""

    def __init__(self, control: Iterable[str]) -> None:
        """control: texts of two characters or more, none twice."""
        texts = sorted(control)
        self._splitter = Splitter((text, i) for i, text in enumerate(texts))
        self._longest = max(map(len, texts), default=0)
        self._heads = texts
        self._tails = sorted(text[::-1] for text in texts)
        self._all = "\n".join(texts)

    def escape(self, request: Any, avoid: str = "") -> tuple[Any, str]:
        """The request with escape characters, and which one: a character that neither it nor `avoid` holds."""
        strings: set[str] = set()

        def collect(text: str) -> str:
            strings.add(text)
            return text

        _walk(request, collect)
        free = (m for m in ESCAPES if m not in self._all and m not in avoid)
        escape = next((m for m in free if not any(m in s for s in strings)), "")
        if not escape:
            raise RequestError("the messages hold every noncharacter from U+FDD0 to U+FDEF", suggestion="remove one")
        escaped = dict(zip(strings, self._escaped(list(strings), escape), strict=True))
        return _walk(request, escaped.__getitem__), escape

    def _escaped(self, strings: list[str], escape: str) -> list[str]:
        escaped = list(strings)
        todo = list(range(len(escaped)))
        while todo:
            # Breaking one token can uncover another that overlapped it, hence until none is left.
            places = self._splitter.places([escaped[i] for i in todo])
            for i, tokens in zip(todo, places, strict=True):
                escaped[i] = _broken(escaped[i], [begin + 1 for begin, _, _ in tokens], escape)
            todo = [i for i, tokens in zip(todo, places, strict=True) if tokens]
        return [self._edged(text, escape) for text in escaped]

    def _edged(self, text: str, escape: str) -> str:
        longest = self._longest - 1
        if longest < 1 or not text:
            return text
        if text in self._all and not text.isidentifier():
            return escape + text + escape
        before = escape if _ends_in_beginning(text[:longest][::-1], self._tails) else ""
        after = escape if _ends_in_beginning(text[-longest:], self._heads) else ""
        return before + text + after


def _ends_in_beginning(text: str, tokens: list[str]) -> bool:
    """Whether an end of the text is a beginning of one of the sorted tokens."""
    for i in range(len(text)):
        part = text[i:]
        at = bisect_left(tokens, part)
        if at < len(tokens) and tokens[at].startswith(part):
            return True
    return False


def _broken(text: str, places: list[int], escape: str) -> str:
    cuts = [0, *places, len(text)]
    return escape.join(text[a:b] for a, b in pairwise(cuts)) if places else text


def _walk(value: Any, change: Callable[[str], str], word: bool = False) -> Any:
    """A copy with every string changed, except plain words where templates compare them."""
    if isinstance(value, str):
        return value if word and value.isidentifier() else change(value)
    if isinstance(value, Mapping):
        return {_walk(key, change, word=True): _walk(item, change, word=key in _WORDS) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, change) for item in value]
    return value
