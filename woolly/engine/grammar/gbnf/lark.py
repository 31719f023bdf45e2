"""GBNF, the grammars of llama.cpp, as Lark.

    root ::= "yes" | "no" [!.]*

What is wrong, and what has no counterpart, is refused with its line.

llguidance matches a grammar by terminals, and takes the longest that fits: after `[a-z]*` as a terminal of its own no
"end" would ever come. GBNF has no terminals: every way to read a text counts. So parts without recursion become
terminals, which is exact within them and fast, but only where the first character of what may follow a terminal never
continues it, or another terminal of the grammar. Where it may, each character is a terminal: this is exact always, and
slow.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import groupby

from woolly.engine.grammar.gbnf.longest import Work, is_exact
from woolly.engine.grammar.gbnf.parts import (
    MOST_DEEP,
    Chars,
    Concat,
    Either,
    Expression,
    Rule,
    Terminal,
    Times,
    inside,
    reachable,
    rebuilt,
    refused,
    rules_of,
    walk,
)
from woolly.engine.grammar.gbnf.reader import Reader
from woolly.errors import RequestError
from woolly.io.cancellation import check

MOST_PARTS = 20_000  # of a rule in which each use of another is written out
MOST_PARTS_IN_ALL = 200_000  # of a grammar; its text has fewer letters


def lark_of(text: str) -> str:
    """The grammar as Lark. RequestError tells the line of what cannot be translated. Time and memory grow with the text
    alone."""
    try:
        return _lark_of(Reader(text).rules())
    except RecursionError:
        raise RequestError(
            "the GBNF grammar has rules, parentheses and repetitions too deep within each other",
            suggestion="write it with fewer levels",
            param="format",
        ) from None


def _lark_of(rules: Mapping[str, Expression]) -> str:
    check()
    expanded = _Expanded(rules)
    if "root" not in expanded.recursive:
        return "start: " + _written(Terminal(expanded.plain(rules["root"])), {})

    def parts_by(way: Callable[[Expression], Expression]) -> Mapping[str, Expression]:
        check()
        return {name: way(rules[name]) for name in expanded.recursive}

    work = Work()
    larger = map(parts_by, (expanded.joined, expanded.single))  # the fewer terminals, the faster
    parts = next((parts for parts in larger if is_exact(parts, work)), None) or parts_by(expanded.spelled)
    names = {name: "start" if name == "root" else f"rule_{index}" for index, name in enumerate(parts)}
    return "\n".join(f"{names[name]}: {_written(part, names)}" for name, part in parts.items())


class _Expanded:
    """Rules, each written out where it is used unless it is recursive: it leads to itself, or to a rule that does."""

    def __init__(self, rules: Mapping[str, Expression]) -> None:
        self._rules = rules
        uses = {name: tuple(rules_of(rules[name])) for name in reachable(rules, "root")}
        plain = _in_order(uses)
        self.recursive = [name for name in uses if name not in plain]
        self._leading = set[int]()  # the parts of recursive rules that lead to one, by their ids
        for name in self.recursive:
            self._mark(rules[name], plain)
        _check_sizes(rules, uses, plain)

    def joined(self, part: Expression) -> Expression:
        """The part with terminals as large as they can be."""
        if self._is_plain(part):
            return Terminal(self.plain(part))
        if not isinstance(part, Concat):
            return rebuilt(part, self.joined)
        runs = ((Concat(tuple(run)),) if plain else run for plain, run in groupby(part.parts, self._is_plain))
        return Concat(tuple(self.joined(inner) for run in runs for inner in run))

    def single(self, part: Expression) -> Expression:
        """The part with a terminal for each text, set and rule."""
        if isinstance(part, Concat) and not all(isinstance(inner, Chars) for inner in part.parts):
            return rebuilt(part, self.single)
        return Terminal(self.plain(part)) if self._is_plain(part) else rebuilt(part, self.single)

    def spelled(self, part: Expression) -> Expression:
        """The part with a terminal for each character."""
        match part:
            case Chars():
                return Terminal(part)
            case Rule(name):
                return self.spelled(self._rules[name]) if self._is_plain(part) else part
        return rebuilt(part, self.spelled)

    def plain(self, part: Expression) -> Expression:
        """The part without rules; it must not lead to one that is recursive."""
        return self.plain(self._rules[part.name]) if isinstance(part, Rule) else rebuilt(part, self.plain)

    def _is_plain(self, part: Expression) -> bool:
        return id(part) not in self._leading

    def _mark(self, part: Expression, plain: Container[str]) -> bool:
        """Note which parts lead to a recursive rule; whether this one does."""
        leading = [self._mark(inner, plain) for inner in inside(part)]
        if any(leading) or (isinstance(part, Rule) and part.name not in plain):
            self._leading.add(id(part))
            return True
        return False


def _in_order(uses: Mapping[str, tuple[Rule, ...]]) -> dict[str, None]:
    """The rules that are not recursive, each behind those that it uses."""
    sorter = TopologicalSorter({name: [rule.name for rule in used] for name, used in uses.items()})
    with suppress(CycleError):
        sorter.prepare()
    order: dict[str, None] = {}
    while names := sorter.get_ready():  # a rule that leads to a circle never becomes ready
        order.update(dict.fromkeys(names))
        sorter.done(*names)
    return order


def _check_sizes(rules: Mapping[str, Expression], uses: Mapping[str, tuple[Rule, ...]], plain: dict[str, None]) -> None:
    """Refuse a grammar that is endless when its rules are written out where they are used."""
    written_out = {name: [rule for rule in used if rule.name in plain] for name, used in uses.items()}
    outermost = [name for name in uses if name not in plain or name == "root"]
    depths = dict.fromkeys(uses, -1)
    for name in (*outermost, *(name for name in reversed(plain) if name != "root")):
        for rule in written_out[name]:
            depths[rule.name] = max(depths[rule.name], depths[name] + 1)
            if depths[rule.name] > MOST_DEEP:
                raise refused(rule.line, f"rules are more than {MOST_DEEP} within each other")
    first_lines = {rule.name: rule.line for used in reversed(written_out.values()) for rule in reversed(used)}
    sizes: dict[str, int] = {}
    for name in plain:
        sizes[name] = _size(rules[name]) + sum(sizes[rule.name] for rule in written_out[name])
        if sizes[name] > MOST_PARTS and name in first_lines:
            line = first_lines[name]
            raise refused(line, f"the rule '{name}' has more than {MOST_PARTS:,} parts when written out")
    total = sum(_size(rules[name]) for name in outermost)
    for rule in (rule for name in outermost for rule in written_out[name]):
        total += sizes[rule.name]
        if total > MOST_PARTS_IN_ALL:
            raise refused(rule.line, f"the rules have more than {MOST_PARTS_IN_ALL:,} parts when written out")


def _size(part: Expression) -> int:
    return 1 + sum(1 for _ in walk(part))


def _pattern(part: Expression) -> str:
    """A part without rules as a regular expression."""
    match part:
        case Chars(ranges):
            return (
                "["
                + "".join(f"{_letter(low)}-{_letter(high)}" if high > low else _letter(low) for low, high in ranges)
                + "]"
            )
        case Concat(parts):
            return "".join(map(_pattern, parts))
        case Either(parts):
            return "(?:" + "|".join(map(_pattern, parts)) + ")"
        case Times(inner, least, most):
            return f"(?:{_pattern(inner)}){_count(least, most)}"
    raise AssertionError(f"no part of a terminal: {part}")


def _written(part: Expression, names: Mapping[str, str]) -> str:
    """A part of a rule as Lark."""
    match part:
        case Terminal(inner):
            pattern = _pattern(inner)
            return f"/{pattern}/" if pattern else '""'  # two slashes would be a comment
        case Rule(name):
            return names[name]
        case Concat(parts):
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
