"""The parts of a GBNF grammar, the walk over them, and sets of characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from woolly.errors import RequestError

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # of code points, ascending, ends included

ALL_CHARACTERS: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
MOST_DEEP = 64  # parentheses, and rules within rules


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Concat:
    """One part after another; without parts the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Times:
    part: Expression
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Terminal:
    """A part that the lexer matches as a whole."""

    part: Expression


Expression: TypeAlias = Chars | Concat | Either | Times | Rule | Terminal


def _parts(part: Expression) -> tuple[Expression, ...]:
    match part:
        case Concat(parts) | Either(parts):
            return parts
        case Times(inner) | Terminal(inner):
            return (inner,)
    return ()


def rebuilt(part: Expression, make: Callable[[Expression], Expression]) -> Expression:
    """A copy of the part, with `make` applied to its inner parts."""
    match part:
        case Concat(parts):
            return Concat(tuple(map(make, parts)))
        case Either(parts):
            return Either(tuple(map(make, parts)))
        case Times(inner, least, most):
            return Times(make(inner), least, most)
    return part


def walk(part: Expression) -> Iterator[Expression]:
    yield part
    for inner in _parts(part):
        yield from walk(inner)


def rules_of(part: Expression) -> Iterator[Rule]:
    return (inner for inner in walk(part) if isinstance(inner, Rule))


def reachable(rules: Mapping[str, Expression], name: str) -> list[str]:
    """The rules that one leads to, itself first."""
    reached = {name: None}
    ahead = [name]
    while ahead:
        for rule in rules_of(rules[ahead.pop()]):
            if rule.name not in reached:
                reached[rule.name] = None
                ahead.append(rule.name)
    return list(reached)


def within(ranges: Ranges, letter: int) -> bool:
    return any(low <= letter <= high for low, high in ranges)


def meet(one: Ranges, other: Ranges) -> bool:
    return any(low <= top and bottom <= high for low, high in one for bottom, top in other)


def refused(line: int, what: str) -> RequestError:
    return RequestError(f"line {line} of the GBNF grammar: {what}", param="format", line=line)
