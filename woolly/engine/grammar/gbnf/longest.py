"""Whether the longest terminal of a grammar is always the right one.

Terminals become states, and each pair of terminals is followed side by side: where one may end, the other must not go
on with a character that may begin what follows. A grammar too large to be compared counts as one whose terminals
overlap: the work is counted, so that the verdict is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from woolly.engine.grammar.gbnf.parts import (
    Chars,
    Concat,
    Either,
    Expression,
    Ranges,
    Rule,
    Terminal,
    Times,
    meet,
    walk,
)
from woolly.io.cancellation import check

MOST_STATES = 4_000  # of a terminal that is compared
MOST_PAIRS = 20_000  # of states that are compared
MOST_WORK = 2_000_000  # looks at parts, states and ranges, of one grammar

Terminals: TypeAlias = int  # a set of them: a bit for each


class _TooLarge(Exception):
    """A grammar that is not compared to its end."""


class Work:
    """Counts looks, in all that is done for one grammar."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def add(self, looks: int) -> None:
        self._left -= looks
        if self._left < 0:
            raise _TooLarge


class _Steps:
    """A terminal as states, of which 0 is the first: where each character leads, and in which the text may end."""

    def __init__(self, part: Expression, work: Work) -> None:
        check()
        self._work = work
        self._free: list[list[int]] = [[]]  # for each state, the states that it reaches without a character
        self._by: list[list[tuple[Ranges, int]]] = [[]]
        last = self._add(part, 0)
        self.ends: set[int] = set()
        self.steps: list[list[tuple[Ranges, int]]] = []
        for state in range(len(self._by)):
            near = self._near(state)
            if last in near:
                self.ends.add(state)
            self.steps.append([step for other in near for step in self._by[other]])

    def first(self) -> Iterator[Ranges]:
        return (ranges for ranges, _ in self.steps[0])

    def _new(self) -> int:
        if len(self._by) > MOST_STATES:
            raise _TooLarge
        self._free.append([])
        self._by.append([])
        return len(self._by) - 1

    def _add(self, part: Expression, state: int) -> int:
        """Add a part that begins in this state; returns the state after it."""
        self._work.add(1)
        match part:
            case Chars(ranges):
                after = self._new()
                self._by[state].append((ranges, after))
                return after
            case Concat(parts):
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

    def _times(self, part: Expression, least: int, most: int | None, state: int) -> int:
        for _ in range(least):
            before, state = state, self._add(part, state)
            if state == before:  # no characters, however often
                break
        after = self._new()
        if most is None:
            again = self._new()
            self._free[state].append(again)
            self._free[self._add(part, again)].append(again)
            self._free[again].append(after)
            return after
        for _ in range(most - least):
            self._free[state].append(after)
            before, state = state, self._add(part, state)
            if state == before:
                break
        self._free[state].append(after)
        return after

    def _near(self, state: int) -> set[int]:
        """The states that this one reaches without a further character."""
        near, ahead = {state}, [state]
        while ahead:
            free = self._free[ahead.pop()]
            self._work.add(1 + len(free))
            new = [other for other in free if other not in near]
            near.update(new)
            ahead += new
        return near


def is_exact(rules: Mapping[str, Expression], work: Work) -> bool:
    """Whether, where a terminal may end, no terminal goes on with a character that may begin what follows it."""
    terminals = dict.fromkeys(part for rule in rules.values() for part in walk(rule) if isinstance(part, Terminal))
    if len(terminals) ** 2 > MOST_PAIRS:
        return False
    try:
        steps = [_Steps(terminal.part, work) for terminal in terminals]
        empty = [0 in each.ends for each in steps]
        follows = _Following(rules, list(terminals), empty, work).of_terminals
        return _is_exact(steps, follows, work)
    except _TooLarge:
        return False


def _is_exact(steps: list[_Steps], follows: list[Terminals], work: Work) -> bool:
    pairs = 0
    for mine, following in zip(steps, follows, strict=True):
        after = [ranges for index, other in enumerate(steps) if following >> index & 1 for ranges in other.first()]
        for theirs in steps:
            check()
            seen, ahead = {(0, 0)}, [(0, 0)]
            while ahead:
                one, other = ahead.pop()
                going_on = theirs.steps[other] if one in mine.ends and (one, other) != (0, 0) else ()
                if any(_meet(ranges, first, work) for ranges, _ in going_on for first in after):
                    return False
                for ranges, to in mine.steps[one]:
                    for others, there in theirs.steps[other]:
                        if (to, there) not in seen and _meet(ranges, others, work):
                            seen.add((to, there))
                            ahead.append((to, there))
            pairs += len(seen)
            if pairs > MOST_PAIRS:
                return False
    return True


def _meet(one: Ranges, other: Ranges, work: Work) -> bool:
    work.add(len(one) + len(other))
    return meet(one, other)


class _Following:
    """By which terminals a text may go on after each terminal. empty: whether each matches the empty text."""

    def __init__(
        self, rules: Mapping[str, Expression], terminals: list[Terminal], empty: list[bool], work: Work
    ) -> None:
        numbers = {terminal: number for number, terminal in enumerate(terminals)}
        # By their ids: a terminal may be large, and is compared with equal ones once.
        self._numbers = {
            id(part): numbers[part] for rule in rules.values() for part in walk(rule) if isinstance(part, Terminal)
        }
        self._empty, self._work = empty, work
        self._first: dict[str, tuple[Terminals, bool]] = dict.fromkeys(rules, (0, False))
        self._after: dict[str, Terminals] = dict.fromkeys(rules, 0)
        self.of_terminals: list[Terminals] = [0] * len(terminals)
        first = None
        while first != (first := dict(self._first)):
            check()
            for name, part in reversed([*rules.items()]):
                self._first[name] = self.first(part)
        after = None
        while after != (after := dict(self._after)):
            check()
            for name, part in rules.items():
                self.follow(part, self._after[name])

    def first(self, part: Expression) -> tuple[Terminals, bool]:
        """The terminals that a part may begin with, and whether it may be empty."""
        self._work.add(1)
        match part:
            case Terminal():
                number = self._numbers[id(part)]
                return 1 << number, self._empty[number]
            case Rule(name):
                return self._first[name]
            case Either(parts):
                terminals, may_be_empty = 0, False
                for first, empty in map(self.first, parts):
                    terminals, may_be_empty = terminals | first, may_be_empty or empty
                return terminals, may_be_empty
            case Concat(parts):
                terminals = 0
                for inner in parts:
                    first, empty = self.first(inner)
                    terminals |= first
                    if not empty:
                        return terminals, False
                return terminals, True
            case Times(inner, least):
                first, empty = self.first(inner)
                return first, empty or least == 0
        raise AssertionError(f"a character that is no terminal: {part}")

    def follow(self, part: Expression, after: Terminals) -> None:
        """Note what comes after each terminal of a part that is followed by these."""
        self._work.add(1)
        match part:
            case Terminal():
                self.of_terminals[self._numbers[id(part)]] |= after
            case Rule(name):
                self._after[name] |= after
            case Either(parts):
                for inner in parts:
                    self.follow(inner, after)
            case Concat(parts):
                for inner in reversed(parts):
                    self.follow(inner, after)
                    first, empty = self.first(inner)
                    after = first | after if empty else first
            case Times(inner, _, most):
                self.follow(inner, after if most == 1 else after | self.first(inner)[0])
