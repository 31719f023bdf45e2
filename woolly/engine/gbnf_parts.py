"""What a GBNF grammar is made of: its parts, the walk over them, and sets of characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from woolly.errors import RequestError

Ranges: TypeAlias = tuple[tuple[int, int], ...]  # of code points, ascending, ends included

EVERY: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
MOST_DEEP = 64  # parentheses, and rules within rules


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


def _parts(part: Part) -> tuple[Part, ...]:
    match part:
        case Row(parts) | Either(parts):
            return parts
        case Times(inner) | Terminal(inner):
            return (inner,)
    return ()


def rebuilt(part: Part, make: Callable[[Part], Part]) -> Part:
    """The same part of other parts."""
    match part:
        case Row(parts):
            return Row(tuple(map(make, parts)))
        case Either(parts):
            return Either(tuple(map(make, parts)))
        case Times(inner, least, most):
            return Times(make(inner), least, most)
    return part


def walk(part: Part) -> Iterator[Part]:
    yield part
    for inner in _parts(part):
        yield from walk(inner)


def rules_of(part: Part) -> Iterator[Rule]:
    return (inner for inner in walk(part) if isinstance(inner, Rule))


def reachable(rules: Mapping[str, Part], name: str) -> list[str]:
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
