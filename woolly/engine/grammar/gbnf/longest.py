"""Whether the longest terminal of a grammar is always the right one.

Terminals become states, and each pair of terminals is followed side by side: where one may end, the other must not go
on with a character that may begin what follows. A grammar too large to be compared counts as one whose terminals
overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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

MOST_STATES = 4_000  # of a terminal that is compared
MOST_PAIRS = 20_000  # of states that are compared


class _Steps:
    """A terminal as states, of which 0 is the first: where each character leads, and in which the text may end."""

    def __init__(self, part: Expression) -> None:
        self._free: list[list[int]] = [[]]  # for each state, the states that it reaches without a character
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

    def _add(self, part: Expression, state: int) -> int:
        """Add a part that begins in this state; returns the state after it."""
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
        """The states that this one reaches without a further character."""
        near, ahead = {state}, [state]
        while ahead:
            new = [other for other in self._free[ahead.pop()] if other not in near]
            near.update(new)
            ahead += new
        return near


def is_exact(rules: Mapping[str, Expression]) -> bool:
    """Whether, where a terminal may end, no terminal goes on with a character that may begin what follows it."""
    try:
        steps = {
            part: _Steps(part.part) for rule in rules.values() for part in walk(rule) if isinstance(part, Terminal)
        }
    except OverflowError:
        return False
    follows = _Following(rules, {part for part, states in steps.items() if 0 in states.ends}).of_terminals
    pairs = 0
    for part, mine in steps.items():
        after = [ranges for other in follows[part] for ranges in steps[other].first()]
        for theirs in steps.values():
            seen, ahead = {(0, 0)}, [(0, 0)]
            while ahead:
                one, other = ahead.pop()
                going_on = theirs.steps[other] if one in mine.ends and (one, other) != (0, 0) else ()
                if any(meet(ranges, first) for ranges, _ in going_on for first in after):
                    return False
                for ranges, to in mine.steps[one]:
                    for others, there in theirs.steps[other]:
                        if (to, there) not in seen and meet(ranges, others):
                            seen.add((to, there))
                            ahead.append((to, there))
            pairs += len(seen)
            if pairs > MOST_PAIRS:
                return False
    return True


class _Following:
    """By which terminals a text may go on after each terminal. empty: the terminals that match the empty text."""

    def __init__(self, rules: Mapping[str, Expression], empty: set[Terminal]) -> None:
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

    def first(self, part: Expression) -> tuple[frozenset[Terminal], bool]:
        """The terminals that a part may begin with, and whether it may be empty."""
        match part:
            case Terminal():
                return frozenset((part,)), part in self._empty
            case Rule(name):
                return self._first[name]
            case Either(parts):
                alternatives = [self.first(inner) for inner in parts]
                return frozenset().union(*(first for first, _ in alternatives)), any(empty for _, empty in alternatives)
            case Concat(parts):
                terminals: frozenset[Terminal] = frozenset()
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

    def follow(self, part: Expression, after: frozenset[Terminal]) -> None:
        """Note what comes after each terminal of a part that is followed by these."""
        match part:
            case Terminal():
                self.of_terminals[part] = self.of_terminals.get(part, frozenset()) | after
            case Rule(name):
                self.of_rules[name] |= after
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
