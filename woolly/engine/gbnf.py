"""GBNF, the grammars of llama.cpp, as Lark.

    root ::= "yes" | "no" [!.]*

What is wrong, and what has no counterpart, is refused with its line.

llguidance matches a grammar by terminals, and takes the longest that fits: after `[a-z]*` as a terminal of its own no
"end" would ever come. GBNF has no terminals: every way to read a text counts. So parts without recursion become
terminals, which is exact within them and fast, but only where the first character of what may follow a terminal never
goes on with it, or with another terminal of the grammar. Where it may, each character is a terminal: this is exact
always, and slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from woolly.errors import RequestError, printable

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # of code points, ascending, ends included

EVERY: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
MOST_TIMES = 10_000  # of a repetition
MOST_DEEP = 64  # parentheses, and rules within rules
MOST_PARTS = 20_000  # of a grammar in which each use of a rule is written out
MOST_STATES = 4_000  # of a terminal that is compared
MOST_PAIRS = 20_000  # of states that are compared, before a grammar counts as one whose terminals overlap
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-", "^": "^"}
_SIGNS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_HEX = {"x": 2, "u": 4, "U": 8}
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SPACE, _LINES = re.compile(r"(?:[ \t\r]|#[^\n]*)*"), re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TIMES = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(?:(,)[ \t]*([0-9]{1,9})?[ \t]*)?\}")


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Row:
    """One after another; none is the empty text."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Times:
    part: Part
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Terminal:
    """A part that is matched as one."""

    part: Part


Part: TypeAlias = Chars | Row | Either | Times | Rule | Terminal


def lark_of(text: str) -> str:
    """The grammar as Lark. RequestError tells the line of what cannot be translated."""
    rules = _Reader(text).rules()
    expanded = _Expanded(rules)
    if "root" not in expanded.recursive:
        return "start: " + _written(Terminal(expanded.plain(rules["root"])), {})
    ways = (expanded.joined, expanded.single, expanded.spelled)  # the fewer terminals, the faster
    tried = ({name: way(rules[name]) for name in expanded.recursive} for way in ways)
    made = next(made for made in tried if _exact(made))
    names = {name: "start" if name == "root" else f"rule_{index}" for index, name in enumerate(made)}
    return "\n".join(f"{names[name]}: {_written(part, names)}" for name, part in made.items())


class _Reader:
    """Reads a grammar; `at` is where it stands."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n") + "\n"
        self.at = 0
        self.depth = 0  # of parentheses

    def rules(self) -> Mapping[str, Part]:
        rules: dict[str, Part] = {}
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
                raise _refused(rule.line, f"there is no rule '{rule.name}'")
        if "root" not in rules:
            raise _refused(1, "there is no rule 'root', with which a text begins")
        return rules

    def either(self, used: list[Rule], *, nested: bool) -> Part:
        parts = [self.row(used, nested=nested)]
        while self.here == "|":
            self.at += 1
            self.space(lines=True)
            parts.append(self.row(used, nested=nested))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def row(self, used: list[Rule], *, nested: bool) -> Part:
        parts: list[Part] = []
        while (part := self.part(used)) is not None:
            self.space(lines=nested)
            while (times := self.times()) is not None:
                part = Times(part, *times)
                self.space(lines=nested)
            parts.append(part)
        return Row(tuple(parts))

    def part(self, used: list[Rule]) -> Part | None:
        first = self.here
        if first == '"':
            return self.literal()
        if first == "[":
            return self.set()
        if first == ".":
            self.at += 1
            return Chars(EVERY)
        if first == "(":
            return self.group(used)
        if first in ("<", "!"):
            raise self.wrong("tokens in a grammar have no counterpart; write their text")
        if _NAME.match(self.text, self.at):
            rule = Rule(self.name(), self.line)
            used.append(rule)
            return rule
        return None

    def group(self, used: list[Rule]) -> Part:
        begun = self.line
        if self.depth == MOST_DEEP:
            raise self.wrong(f"parentheses are more than {MOST_DEEP} deep")
        self.at += 1
        self.depth += 1
        self.space(lines=True)
        part = self.either(used, nested=True)
        if self.here != ")":
            raise _refused(begun, "a ( is never closed")
        self.at += 1
        self.depth -= 1
        return part

    def literal(self) -> Part:
        self.at += 1
        letters: list[Part] = []
        while (letter := self.letter('"', "text")) is not None:
            letters.append(Chars(((letter, letter),)))
        return Row(tuple(letters))

    def set(self) -> Part:
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
        return Chars(_without(EVERY, ranges) if negated else _without(EVERY, _without(EVERY, ranges)))

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
            if not re.fullmatch(f"[0-9A-Fa-f]{{{_HEX[kind]}}}", digits) or not _within(EVERY, int(digits, 16)):
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
        found = _TIMES.match(self.text, self.at)
        if not found:
            raise self.wrong("expected {n}, {n,} or {n,m}")
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MOST_TIMES or (most is not None and most < least):
            raise self.wrong(f"a repetition of {found[0]} is not possible; the most is {MOST_TIMES:,} times")
        self.at = found.end()
        return least, most

    def name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if not found:
            raise self.wrong(f"expected the name of a rule, not '{printable(self.here)}'")
        self.at = found.end()
        return found[0]

    def space(self, *, lines: bool = False) -> None:
        """Pass over white space and comments; with `lines` over the ends of lines."""
        found = (_LINES if lines else _SPACE).match(self.text, self.at)
        self.at = found.end() if found else self.at

    @property
    def here(self) -> str:
        """The next character; none at the end."""
        return self.text[self.at : self.at + 1]

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def wrong(self, what: str) -> RequestError:
        return _refused(self.line, what)


def _refused(line: int, what: str) -> RequestError:
    return RequestError(f"line {line} of the GBNF grammar: {what}", param="format", line=line)


class _Expanded:
    """Rules, each written out where it is used unless it leads to itself. recursive: those that do, by way of any."""

    def __init__(self, rules: Mapping[str, Part]) -> None:
        self._rules = rules
        reached = _reached(rules, "root")
        leads = {name: set(_reached(rules, name)) for name in reached}
        circles = {name for name in reached if any(name in leads[rule.name] for rule in _used(rules[name]))}
        self.recursive = [name for name in reached if leads[name] & circles]
        self._sizes: dict[str, int] = {}
        for name in reached:
            for rule in _used(rules[name]):
                if rule.name not in self.recursive:
                    self._measure(rule)

    def joined(self, part: Part) -> Part:
        """The part with terminals as large as they can be."""
        if self._is_plain(part):
            return Terminal(self.plain(part))
        if not isinstance(part, Row):
            return _rebuilt(part, self.joined)
        runs = ((Row(tuple(run)),) if plain else run for plain, run in groupby(part.parts, self._is_plain))
        return Row(tuple(self.joined(inner) for run in runs for inner in run))

    def single(self, part: Part) -> Part:
        """The part with a terminal for each text, set and rule."""
        if isinstance(part, Row) and not all(isinstance(inner, Chars) for inner in part.parts):
            return _rebuilt(part, self.single)
        return Terminal(self.plain(part)) if self._is_plain(part) else _rebuilt(part, self.single)

    def spelled(self, part: Part) -> Part:
        """The part with a terminal for each character."""
        match part:
            case Chars():
                return Terminal(part)
            case Rule(name):
                return part if name in self.recursive else self.spelled(self._rules[name])
        return _rebuilt(part, self.spelled)

    def plain(self, part: Part) -> Part:
        """The part without rules; it must not lead to one that is recursive."""
        return self.plain(self._rules[part.name]) if isinstance(part, Rule) else _rebuilt(part, self.plain)

    def _is_plain(self, part: Part) -> bool:
        return not any(rule.name in self.recursive for rule in _used(part))

    def _measure(self, rule: Rule, depth: int = 0) -> int:
        """How many parts a rule has when it is written out; refused where it would be endless work."""
        if depth > MOST_DEEP:
            raise _refused(rule.line, f"rules are more than {MOST_DEEP} within each other")
        size = self._sizes.get(rule.name)
        if size is None:
            inner = (self._measure(used, depth + 1) for used in _used(self._rules[rule.name]))
            size = self._sizes[rule.name] = 1 + sum(1 for _ in _inside(self._rules[rule.name])) + sum(inner)
        if size > MOST_PARTS:
            raise _refused(rule.line, f"the rule '{rule.name}' has more than {MOST_PARTS:,} parts when written out")
        return size


def _parts(part: Part) -> tuple[Part, ...]:
    match part:
        case Row(parts) | Either(parts):
            return parts
        case Times(inner) | Terminal(inner):
            return (inner,)
    return ()


def _rebuilt(part: Part, make: Callable[[Part], Part]) -> Part:
    """The same part of other parts."""
    match part:
        case Row(parts):
            return Row(tuple(map(make, parts)))
        case Either(parts):
            return Either(tuple(map(make, parts)))
        case Times(inner, least, most):
            return Times(make(inner), least, most)
    return part


def _inside(part: Part) -> Iterator[Part]:
    yield part
    for inner in _parts(part):
        yield from _inside(inner)


def _used(part: Part) -> Iterator[Rule]:
    return (inner for inner in _inside(part) if isinstance(inner, Rule))


def _reached(rules: Mapping[str, Part], name: str) -> list[str]:
    """The rules that one leads to, itself first."""
    reached = {name: None}
    ahead = [name]
    while ahead:
        for rule in _used(rules[ahead.pop()]):
            if rule.name not in reached:
                reached[rule.name] = None
                ahead.append(rule.name)
    return list(reached)


# Whether the longest terminal is always the right one


class _Steps:
    """A terminal as states, of which 0 is the first: where each character leads, and in which the text may end."""

    def __init__(self, part: Part) -> None:
        self._free: list[list[int]] = [[]]  # to which states one may pass without a character
        self._by: list[list[tuple[Ranges, int]]] = [[]]
        last = self._add(part, 0)
        self.ends = {state for state in range(len(self._free)) if last in self._near(state)}
        self.steps = [[step for near in self._near(state) for step in self._by[near]] for state in range(len(self._by))]

    def first(self) -> Iterator[Ranges]:
        return (ranges for ranges, _ in self.steps[0])

    def _new(self) -> int:
        if len(self._by) > MOST_STATES:
            raise OverflowError
        self._free.append([])
        self._by.append([])
        return len(self._by) - 1

    def _add(self, part: Part, state: int) -> int:
        """Where one is after the part that begins in this state."""
        match part:
            case Chars(ranges):
                after = self._new()
                self._by[state].append((ranges, after))
                return after
            case Row(parts):
                for inner in parts:
                    state = self._add(inner, state)
                return state
            case Either(parts):
                after = self._new()
                for inner in parts:
                    begin = self._new()
                    self._free[state].append(begin)
                    self._free[self._add(inner, begin)].append(after)
                return after
            case Times(inner, least, most):
                return self._times(inner, least, most, state)
        raise AssertionError(f"no part of a terminal: {part}")

    def _times(self, part: Part, least: int, most: int | None, state: int) -> int:
        for _ in range(least):
            state = self._add(part, state)
        after = self._new()
        if most is None:
            again = self._new()
            self._free[state].append(again)
            self._free[self._add(part, again)].append(again)
            self._free[again].append(after)
            return after
        for _ in range(most - least):
            self._free[state].append(after)
            state = self._add(part, state)
        self._free[state].append(after)
        return after

    def _near(self, state: int) -> set[int]:
        """The states that one may be in without a further character."""
        near, ahead = {state}, [state]
        while ahead:
            new = [other for other in self._free[ahead.pop()] if other not in near]
            near.update(new)
            ahead += new
        return near


def _exact(rules: Mapping[str, Part]) -> bool:
    """Whether no terminal can go on with a character by which what follows it, or follows another, may begin."""
    try:
        steps = {
            part: _Steps(part.part) for rule in rules.values() for part in _inside(rule) if isinstance(part, Terminal)
        }
    except OverflowError:
        return False
    follows = _Following(rules, {part for part, made in steps.items() if 0 in made.ends}).of_terminals
    pairs = 0
    for part, mine in steps.items():
        after = [ranges for other in follows[part] for ranges in steps[other].first()]
        for theirs in steps.values():
            seen, ahead = {(0, 0)}, [(0, 0)]
            while ahead:
                one, other = ahead.pop()
                going_on = theirs.steps[other] if one in mine.ends and (one, other) != (0, 0) else ()
                if any(_meet(ranges, first) for ranges, _ in going_on for first in after):
                    return False
                for ranges, to in mine.steps[one]:
                    for others, there in theirs.steps[other]:
                        if (to, there) not in seen and _meet(ranges, others):
                            seen.add((to, there))
                            ahead.append((to, there))
            pairs += len(seen)
            if pairs > MOST_PAIRS:
                return False
    return True


class _Following:
    """By which terminals a text may go on after each terminal. empty: the terminals that match the empty text."""

    def __init__(self, rules: Mapping[str, Part], empty: set[Terminal]) -> None:
        self._rules, self._empty = rules, empty
        self._first: dict[str, tuple[frozenset[Terminal], bool]] = dict.fromkeys(rules, (frozenset(), False))
        self.of_rules: dict[str, frozenset[Terminal]] = dict.fromkeys(rules, frozenset())
        self.of_terminals: dict[Terminal, frozenset[Terminal]] = {}
        while (now := {name: self.first(part) for name, part in rules.items()}) != self._first:
            self._first = now
        before = None
        while before != (before := (dict(self.of_rules), dict(self.of_terminals))):
            for name, part in rules.items():
                self.follow(part, self.of_rules[name])

    def first(self, part: Part) -> tuple[frozenset[Terminal], bool]:
        """The terminals that a part may begin with, and whether it may be empty."""
        match part:
            case Terminal():
                return frozenset((part,)), part in self._empty
            case Rule(name):
                return self._first[name]
            case Either(parts):
                every = [self.first(inner) for inner in parts]
                return frozenset().union(*(first for first, _ in every)), any(empty for _, empty in every)
            case Row(parts):
                made: frozenset[Terminal] = frozenset()
                for inner in parts:
                    first, empty = self.first(inner)
                    made |= first
                    if not empty:
                        return made, False
                return made, True
            case Times(inner, least):
                first, empty = self.first(inner)
                return first, empty or least == 0
        raise AssertionError(f"a character that is no terminal: {part}")

    def follow(self, part: Part, after: frozenset[Terminal]) -> None:
        """Note what comes after each terminal of a part that is followed by these."""
        match part:
            case Terminal():
                self.of_terminals[part] = self.of_terminals.get(part, frozenset()) | after
            case Rule(name):
                self.of_rules[name] |= after
            case Either(parts):
                for inner in parts:
                    self.follow(inner, after)
            case Row(parts):
                for inner in reversed(parts):
                    self.follow(inner, after)
                    first, empty = self.first(inner)
                    after = first | after if empty else first
            case Times(inner, _, most):
                self.follow(inner, after if most == 1 else after | self.first(inner)[0])


# Sets of characters


def _without(every: Ranges, taken: Iterable[tuple[int, int]]) -> Ranges:
    """What is left of sorted ranges without others."""
    left = list(every)
    for low, high in taken:
        left = [
            (begin, end)
            for first, last in left
            for begin, end in ((first, min(last, low - 1)), (max(first, high + 1), last))
            if begin <= end
        ]
    return tuple(sorted(set(left)))


def _within(ranges: Ranges, letter: int) -> bool:
    return any(low <= letter <= high for low, high in ranges)


def _meet(one: Ranges, other: Ranges) -> bool:
    return any(low <= top and bottom <= high for low, high in one for bottom, top in other)


# Writing


def _pattern(part: Part) -> str:
    """A part without rules as a regular expression."""
    match part:
        case Chars(ranges):
            return (
                "["
                + "".join(f"{_letter(low)}-{_letter(high)}" if high > low else _letter(low) for low, high in ranges)
                + "]"
            )
        case Row(parts):
            return "".join(map(_pattern, parts))
        case Either(parts):
            return "(?:" + "|".join(map(_pattern, parts)) + ")"
        case Times(inner, least, most):
            return f"(?:{_pattern(inner)}){_count(least, most)}"
    raise AssertionError(f"no part of a terminal: {part}")


def _written(part: Part, names: Mapping[str, str]) -> str:
    """A part of a rule as Lark."""
    match part:
        case Terminal(inner):
            pattern = _pattern(inner)
            return f"/{pattern}/" if pattern else '""'  # two slashes would be a comment
        case Rule(name):
            return names[name]
        case Row(parts):
            return "(" + " ".join(_written(inner, names) for inner in parts) + ")" if parts else '""'
        case Either(parts):
            return "(" + " | ".join(_written(inner, names) for inner in parts) + ")"
        case Times(inner, least, most):
            return f"({_written(inner, names)}){_count(least, most)}"
    raise AssertionError(f"a character that is no terminal: {part}")


def _count(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}"


def _letter(letter: int) -> str:
    return chr(letter) if letter < 128 and chr(letter).isalnum() else f"\\x{{{letter:X}}}"
