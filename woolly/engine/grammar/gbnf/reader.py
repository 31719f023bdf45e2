"""Reads the text of a GBNF grammar into its rules; what is wrong is refused with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from woolly.engine.grammar.gbnf.parts import (
    ALL_CHARACTERS,
    LAST_CHARACTER,
    MOST_DEEP,
    NO_CHARACTERS,
    Chars,
    Concat,
    Either,
    Expression,
    Ranges,
    Rule,
    Times,
    refused,
    within,
)
from woolly.errors import RequestError, printable

MOST_TIMES = 10_000  # of a repetition
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^"}
_SIGNS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_HEX = {"x": 2, "u": 4, "U": 8}
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SPACE, _LINES = re.compile(r"(?:[ \t\r]|#[^\n]*)*"), re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TIMES = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(?:(,)[ \t]*([0-9]{1,9})?[ \t]*)?\}")


class Reader:
    """Reads a grammar; `at` is where it stands."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n") + "\n"
        self.at = 0
        self.depth = 0  # of parentheses
        self._line, self._line_at = 1, 0  # the line of a place before `at`

    def rules(self) -> Mapping[str, Expression]:
        rules: dict[str, Expression] = {}
        used: list[Rule] = []
        self.space(lines=True)
        while self.at < len(self.text):
            name = self.name()
            if name in rules:
                raise self.wrong(f"the rule '{name}' is there twice")
            self.space()
            if not self.text.startswith("::=", self.at):
                raise self.wrong(f"expected ::= after '{name}'")
            self.at += 3
            self.space(lines=True)
            rules[name] = self.either(used, nested=False)
            if self.here != "\n":
                raise self.wrong(f"'{printable(self.here)}' has no meaning here")
            self.space(lines=True)
        for rule in used:
            if rule.name not in rules:
                raise refused(rule.line, f"there is no rule '{rule.name}'")
        if "root" not in rules:
            raise refused(1, "there is no rule 'root', with which a text begins")
        return rules

    def either(self, used: list[Rule], *, nested: bool) -> Expression:
        parts = [self.row(used, nested=nested)]
        while self.here == "|":
            self.at += 1
            self.space(lines=True)
            parts.append(self.row(used, nested=nested))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def row(self, used: list[Rule], *, nested: bool) -> Expression:
        parts: list[Expression] = []
        while (part := self.part(used)) is not None:
            self.space(lines=nested)
            depth = 0
            while (times := self.times()) is not None:
                if depth == MOST_DEEP:
                    raise self.wrong(f"repetitions are more than {MOST_DEEP} within each other")
                depth += 1
                part = Times(part, *times)
                self.space(lines=nested)
            parts.append(part)
        return Concat(tuple(parts))

    def part(self, used: list[Rule]) -> Expression | None:
        first = self.here
        if first == '"':
            return self.literal()
        if first == "[":
            return self.set()
        if first == ".":
            self.at += 1
            return Chars(ALL_CHARACTERS)
        if first == "(":
            return self.group(used)
        if first in ("<", "!"):
            raise self.wrong("tokens in a grammar have no counterpart; write their text")
        if _NAME.match(self.text, self.at):
            rule = Rule(self.name(), self.line)
            used.append(rule)
            return rule
        return None

    def group(self, used: list[Rule]) -> Expression:
        begun = self.line
        if self.depth == MOST_DEEP:
            raise self.wrong(f"parentheses are more than {MOST_DEEP} deep")
        self.at += 1
        self.depth += 1
        self.space(lines=True)
        part = self.either(used, nested=True)
        if self.here != ")":
            raise refused(begun, "a ( is never closed")
        self.at += 1
        self.depth -= 1
        return part

    def literal(self) -> Expression:
        self.at += 1
        letters: list[Expression] = []
        while (letter := self.letter('"', "text")) is not None:
            letters.append(Chars(((letter, letter),)))
        return Concat(tuple(letters))

    def set(self) -> Expression:
        self.at += 1
        negated = self.here == "^"
        self.at += negated
        ranges: list[tuple[int, int]] = []
        while (low := self.letter("]", "set")) is not None:
            high = low
            if self.here == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                end = self.letter("]", "set")
                high = low if end is None else end
            if high < low:
                raise self.wrong(f"the range {printable(chr(low))}-{printable(chr(high))} runs backwards")
            ranges.append((low, high))
        others = _others(ranges)
        return Chars(others if negated else _others(others))

    def letter(self, end: str, what: str) -> int | None:
        """The next character of a text or set; None at its end."""
        letter = self.text[self.at]
        if letter == "\n":
            raise self.wrong(f"the {what} does not end on its line")
        self.at += 1
        if letter == end:
            return None
        if letter != "\\":
            return ord(letter)
        kind = self.text[self.at]
        self.at += 1
        if kind in _HEX:
            digits = self.text[self.at : self.at + _HEX[kind]]
            if not re.fullmatch(f"[0-9A-Fa-f]{{{_HEX[kind]}}}", digits) or not within(ALL_CHARACTERS, int(digits, 16)):
                raise self.wrong(f"\\{kind}{printable(digits)} is no character")
            self.at += _HEX[kind]
            return int(digits, 16)
        if kind not in _ESCAPES:
            raise self.wrong(f"\\{printable(kind)} has no meaning")
        return ord(_ESCAPES[kind])

    def times(self) -> tuple[int, int | None] | None:
        sign = self.here
        if sign in _SIGNS:
            self.at += 1
            return _SIGNS[sign]
        if sign != "{":
            return None
        match = _TIMES.match(self.text, self.at)
        if not match:
            raise self.wrong("expected {n}, {n,} or {n,m}")
        least = int(match[1])
        most = int(match[3]) if match[3] else None if match[2] else least
        if max(least, most or 0) > MOST_TIMES or (most is not None and most < least):
            raise self.wrong(f"a repetition of {match[0]} is not possible; the most is {MOST_TIMES:,} times")
        self.at = match.end()
        return least, most

    def name(self) -> str:
        match = _NAME.match(self.text, self.at)
        if not match:
            raise self.wrong(f"expected the name of a rule, not '{printable(self.here)}'")
        self.at = match.end()
        return match[0]

    def space(self, *, lines: bool = False) -> None:
        """Pass over white space and comments; with `lines` over the ends of lines."""
        match = (_LINES if lines else _SPACE).match(self.text, self.at)
        self.at = match.end() if match else self.at

    @property
    def here(self) -> str:
        """The next character; none at the end."""
        return self.text[self.at : self.at + 1]

    @property
    def line(self) -> int:
        self._line += self.text.count("\n", self._line_at, self.at)
        self._line_at = self.at
        return self._line

    def wrong(self, what: str) -> RequestError:
        return refused(self.line, what)


def _others(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All characters but these."""
    others, begin = [], 0
    for low, high in sorted((*ranges, NO_CHARACTERS)):
        if begin < low:
            others.append((begin, low - 1))
        begin = max(begin, high + 1)
    return (*others, (begin, LAST_CHARACTER)) if begin <= LAST_CHARACTER else tuple(others)
