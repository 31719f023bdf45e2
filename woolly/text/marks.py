"""Keeping what users write apart from what the template writes.

A template puts both into one text, and in that text `<|im_end|>` ends a message. So before rendering, every control
token that stands in a string of the request is broken by a mark after its first character; and a string that ends in
the beginning of one, or begins with the end of one, or is the middle of one, gets the mark on that side: strings, or a
string and the template, cannot join to a token either. A mark is a noncharacter of Unicode that the request does not
hold. After the special tokens are split off, it is removed (`Tokenizer.encode_chat`): the user's text is encoded as it
was written.

Templates compare roles, types and keys, and some write `<|` and `|>` around a role to make a token. So those stay as
they are as long as they are plain words, and a plain word counts as the middle of nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from woolly.errors import RequestError
from woolly.text.special import Splitter

MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
_WORDS = ("role", "type")  # keys whose values templates compare


class Marker:
    """Marks the control tokens of one vocabulary in the strings of a request."""

    def __init__(self, control: Iterable[str]) -> None:
        """control: texts of two characters or more, none twice."""
        texts = sorted(control)
        self._splitter = Splitter((text, i) for i, text in enumerate(texts))
        self._longest = max(map(len, texts), default=0)
        self._heads = texts
        self._tails = sorted(text[::-1] for text in texts)
        self._all = "\n".join(texts)

    def mark(self, request: Any, avoid: str = "") -> tuple[Any, str]:
        """A copy of the request with marks, and the mark: a character that neither it nor `avoid` holds."""
        strings: set[str] = set()

        def collect(text: str) -> str:
            strings.add(text)
            return text

        _walk(request, collect)
        free = (m for m in MARKS if m not in self._all and m not in avoid)
        mark = next((m for m in free if not any(m in s for s in strings)), "")
        if not mark:
            raise RequestError("the messages hold every noncharacter from U+FDD0 to U+FDEF", suggestion="remove one")
        marked = dict(zip(strings, self._marked(list(strings), mark), strict=True))
        return _walk(request, marked.__getitem__), mark

    def _marked(self, strings: list[str], mark: str) -> list[str]:
        marked = list(strings)
        todo = list(range(len(marked)))
        while todo:
            # Breaking one token can uncover another that overlapped it, hence until none is left.
            places = self._splitter.places([marked[i] for i in todo])
            for i, found in zip(todo, places, strict=True):
                marked[i] = _broken(marked[i], [begin + 1 for begin, _, _ in found], mark)
            todo = [i for i, found in zip(todo, places, strict=True) if found]
        return [self._edged(text, mark) for text in marked]

    def _edged(self, text: str, mark: str) -> str:
        longest = self._longest - 1
        if longest < 1 or not text:
            return text
        if text in self._all and not text.isidentifier():
            return mark + text + mark
        before = mark if _ends_in_beginning(text[:longest][::-1], self._tails) else ""
        after = mark if _ends_in_beginning(text[-longest:], self._heads) else ""
        return before + text + after


def _ends_in_beginning(text: str, tokens: list[str]) -> bool:
    """Whether an end of the text is a beginning of one of the sorted tokens."""
    for i in range(len(text)):
        part = text[i:]
        at = bisect_left(tokens, part)
        if at < len(tokens) and tokens[at].startswith(part):
            return True
    return False


def _broken(text: str, places: list[int], mark: str) -> str:
    cuts = [0, *places, len(text)]
    return mark.join(text[a:b] for a, b in pairwise(cuts)) if places else text


def _walk(value: Any, change: Callable[[str], str], word: bool = False) -> Any:
    """A copy with every string changed, except plain words where templates compare them."""
    if isinstance(value, str):
        return value if word and value.isidentifier() else change(value)
    if isinstance(value, Mapping):
        return {_walk(key, change, word=True): _walk(item, change, word=key in _WORDS) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, change) for item in value]
    return value
