"""The parts of a GBNF grammar, the walk over them, and sets of characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from woolly.errors import RequestError

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # of code points, ascending, ends included

LAST_CHARACTER = 0x10FFFF
NO_CHARACTERS = (0xD800, 0xDFFF)  # halves of surrogate pairs
ALL_CHARACTERS: Ranges = ((0, 0xD7FF), (0xE000, LAST_CHARACTER))
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


def inside(part: Expression) -> tuple[Expression, ...]:
    """The parts directly within a part."""
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
    """A part and all that is in it, each before what is in it."""
    ahead = [part]
    while ahead:
        part = ahead.pop()
        yield part
        ahead += reversed(inside(part))


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
    """Whether two sets have a character in common: one look at each range."""
    mine, theirs = iter(one), iter(other)
    try:
        (low, high), (bottom, top) = next(mine), next(theirs)
        while high < bottom or top < low:
            if high < bottom:
                low, high = next(mine)
            else:
                bottom, top = next(theirs)
    except StopIteration:
        return False
    return True


def refused(line: int, what: str) -> RequestError:
    return RequestError(f"line {line} of the GBNF grammar: {what}", param="format", line=line)
