"""Values in the text of a model, read while the text grows: as JSON, as Python or as Gemma writes them.

A reader is a generator that yields where it needs more text, so that its result does not depend on how the text is cut
into pieces. `Broken` says that the text is no such value, `Cut` that the text ended before that was known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]

DEPTH = 64  # of nested values
WORD = 4_000  # characters of a number or a name; Python reads no longer integers
LARGEST = sys.float_info.max
SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[\w.+-]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'", "\n": ""}
_WORDS = {"true": True, "false": False, "null": None}


class Broken(Exception):
    """The text is not what the reader reads."""


class Cut(Exception):
    """The text ended too early."""


@dataclass(slots=True)
class Started:
    """A call whose arguments are written as JSON, from `begin` on; `end` is None until they are complete."""

    name: str
    id: str
    begin: int
    end: int | None = None


class Source:
    """A text that grows, and the place up to which it was read. started: the calls whose arguments have begun."""

    __slots__ = ("at", "ended", "started", "text")

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.at = 0
        self.ended = False
        self.started: list[Started] = []

    def peek(self, count: int = 1) -> Reading[str]:
        """The next characters; fewer only where the text ends."""
        while len(self.text) - self.at < count and not self.ended:
            yield
        return self.text[self.at : self.at + count]

    def begins(self, mark: str) -> Reading[bool]:
        """Whether a mark comes next. Waits for more text only while that is possible."""
        while not self.text.startswith(mark, self.at):
            if self.ended or not mark.startswith(self.text[self.at : self.at + len(mark)]):
                return False
            yield
        return True

    def take(self, *marks: str) -> Reading[str]:
        """The first of the marks that comes next, read; "" if none does."""
        for mark in marks:
            if (yield from self.begins(mark)):
                self.at += len(mark)
                return mark
        return ""

    def expect(self, *marks: str) -> Reading[str]:
        """As `take`, but one of the marks must come: else Cut or Broken."""
        mark = yield from self.take(*marks)
        if not mark:
            self.refuse(*marks)
        return mark

    def refuse(self, *marks: str) -> None:
        """None of the marks is here: Cut where the text ended while it could become one, else Broken."""
        if self.ended and any(mark.startswith(self.text[self.at :]) for mark in marks):
            raise Cut
        raise Broken

    def until(self, *marks: str, most: int | None = None) -> Reading[str]:
        """The text before the first of the marks, read; the mark is not. most: the characters that it may have."""
        begin, looked = self.at, self.at
        longest = max(map(len, marks))
        while True:
            places = [at for mark in marks if (at := self.text.find(mark, looked)) >= 0]
            if places:
                self.at = min(places)
                return self.text[begin : self.at]
            looked = max(begin, len(self.text) - longest + 1)
            if most is not None and looked - begin > most:
                raise Broken
            if self.ended:
                raise Cut
            yield

    def space(self, more: str = "") -> Reading[None]:
        """Read white space."""
        while (yield from self.peek()) and self.text[self.at] in SPACE + more:
            self.at += 1

    def match(self, pattern: re.Pattern[str], most: int = WORD) -> Reading[str]:
        """Read the longest match of a pattern, which must also match every beginning of its matches."""
        while True:
            match = pattern.match(self.text, self.at)
            end = match.end() if match else self.at
            if end - self.at > most:
                raise Broken
            if end < len(self.text) or self.ended:
                begin, self.at = self.at, end
                return self.text[begin:end]
            yield


@dataclass(frozen=True, slots=True)
class Notation:
    """A way of writing values.

    quotes: what opens and closes a string. escapes: whether a backslash in it has a meaning. words: the words that are
    values. tuples: whether ( ) is a list too. bare: whether keys and strings may have no quotes.
    """

    quotes: tuple[str, ...] = ('"',)
    escapes: bool = True
    words: Mapping[str, Any] = field(default_factory=lambda: _WORDS)
    lenient: bool = False  # unknown escapes stay as they are, and a comma may come last
    tuples: bool = False
    bare: bool = False


JSON = Notation()
PYTHON = Notation(('"', "'"), words={**_WORDS, "True": True, "False": False, "None": None}, lenient=True, tuples=True)
GEMMA = Notation(('<|"|>', "<escape>", '"'), escapes=False, lenient=True, bare=True)


def read_value(source: Source, notation: Notation = JSON, depth: int = 0) -> Reading[Any]:
    """One value, with the white space before it."""
    if depth > DEPTH:
        raise Broken
    yield from source.space()
    first = yield from source.peek()
    if not first:
        raise Cut
    if first == "{":
        return (yield from read_object(source, notation, depth))
    if first == "[" or (first == "(" and notation.tuples):
        return (yield from _list(source, notation, depth, "]" if first == "[" else ")"))
    if quote := (yield from source.take(*notation.quotes)):
        return (yield from _string(source, quote, notation))
    return (yield from _word(source, notation))


def read_object(
    source: Source,
    notation: Notation = JSON,
    depth: int = 0,
    member: Callable[[str, Mapping[str, Any]], Reading[Any]] | None = None,
) -> Reading[dict[str, Any]]:
    """An object. member: reads the value of a key, given the members before it; None: any value is read."""
    yield from source.expect("{")
    result: dict[str, Any] = {}
    while True:
        yield from source.space()
        if (not result or notation.lenient) and (yield from source.take("}")):
            return result
        quote = yield from source.take(*notation.quotes)
        if quote:
            key = yield from _string(source, quote, notation)
        elif notation.bare:
            key = yield from source.match(_WORD)
        else:
            source.refuse(*notation.quotes, "}" if not result else notation.quotes[0])
        yield from source.space()
        yield from source.expect(":")
        yield from source.space()
        result[key] = yield from (member(key, result) if member else read_value(source, notation, depth + 1))
        yield from source.space()
        if (yield from source.expect(",", "}")) == "}":
            return result


def _list(source: Source, notation: Notation, depth: int, closing: str) -> Reading[list[Any]]:
    source.at += 1
    items: list[Any] = []
    while True:
        yield from source.space()
        if (not items or notation.lenient) and (yield from source.take(closing)):
            return items
        items.append((yield from read_value(source, notation, depth + 1)))
        yield from source.space()
        if (yield from source.expect(",", closing)) == closing:
            return items


def _string(source: Source, quote: str, notation: Notation) -> Reading[str]:
    """The rest of a string whose opening quote was read."""
    if not notation.escapes or len(quote) > 1:
        text = yield from source.until(quote)
        source.at += len(quote)
        return text
    parts: list[str] = []
    plain = re.compile(rf"[^\\{quote}]*")
    while True:
        parts.append((yield from _run(source, plain)))
        if (yield from source.peek()) == quote:
            source.at += 1
            # Pairs of surrogates are one character; a lone one cannot be sent, and is U+FFFD.
            return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        escape = yield from source.peek(2)
        if len(escape) < 2:
            raise Cut
        if escape[1] in "ux":
            parts.append((yield from _code(source, 4 if escape[1] == "u" else 2)))
            continue
        if escape[1] not in _ESCAPES and not notation.lenient:
            raise Broken
        source.at += 2
        parts.append(_ESCAPES.get(escape[1], escape))


def _run(source: Source, plain: re.Pattern[str]) -> Reading[str]:
    """Plain characters up to the next that is not; read piece by piece, so that none is looked at twice."""
    parts = []
    while True:
        match = plain.match(source.text, source.at)
        end = match.end() if match else source.at
        parts.append(source.text[source.at : end])
        source.at = end
        if end < len(source.text):
            return "".join(parts)
        if source.ended:
            raise Cut
        yield


def _code(source: Source, digits: int) -> Reading[str]:
    r"""A character by its number: \u00e9, \xe9."""
    escape = yield from source.peek(2 + digits)
    if len(escape) < 2 + digits:
        raise Cut
    try:
        character = chr(int(escape[2:], 16))
    except ValueError:
        raise Broken from None
    source.at += 2 + digits
    return character


def finite(number: str) -> float:
    """A number as JSON writes it, which may be larger than a float can be: then the largest."""
    return max(-LARGEST, min(float(number), LARGEST))


def _word(source: Source, notation: Notation) -> Reading[Any]:
    """A number, a word with a meaning, or, where strings need no quotes, any words up to a comma or a bracket."""
    word = yield from source.match(_WORD)
    number = _NUMBER.fullmatch(word)
    if number:
        if not (number[2] or number[3]):
            return int(word)
        return finite(word)
    if word in notation.words:
        return notation.words[word]
    if notation.bare and word:
        more = yield from source.until(",", "}", "]")
        return (word + more).strip()
    if source.ended and source.at == len(source.text):
        raise Cut
    raise Broken


def run(reading: Reading[T]) -> T:
    """The result of a reader over a text that has ended."""
    try:
        next(reading)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("a text that has ended does not grow")
