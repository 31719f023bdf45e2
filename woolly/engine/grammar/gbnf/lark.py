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

from collections.abc import Mapping
from itertools import groupby

from woolly.engine.grammar.gbnf.longest import is_exact
from woolly.engine.grammar.gbnf.parts import (
    MOST_DEEP,
    Chars,
    Concat,
    Either,
    Expression,
    Rule,
    Terminal,
    Times,
    reachable,
    rebuilt,
    refused,
    rules_of,
    walk,
)
from woolly.engine.grammar.gbnf.reader import Reader

MOST_PARTS = 20_000  # of a grammar in which each use of a rule is written out


def lark_of(text: str) -> str:
    """The grammar as Lark. RequestError tells the line of what cannot be translated."""
    rules = Reader(text).rules()
    expanded = _Expanded(rules)
    if "root" not in expanded.recursive:
        return "start: " + _written(Terminal(expanded.plain(rules["root"])), {})
    ways = (expanded.joined, expanded.single, expanded.spelled)  # the fewer terminals, the faster
    tried = ({name: way(rules[name]) for name in expanded.recursive} for way in ways)
    parts = next(parts for parts in tried if is_exact(parts))
    names = {name: "start" if name == "root" else f"rule_{index}" for index, name in enumerate(parts)}
    return "\n".join(f"{names[name]}: {_written(part, names)}" for name, part in parts.items())


class _Expanded:
    """Rules, each written out where it is used unless it is recursive: it leads to itself, or to a rule that does."""

    def __init__(self, rules: Mapping[str, Expression]) -> None:
        self._rules = rules
        reached = reachable(rules, "root")
        leads = {name: set(reachable(rules, name)) for name in reached}
        circles = {name for name in reached if any(name in leads[rule.name] for rule in rules_of(rules[name]))}
        self.recursive = [name for name in reached if leads[name] & circles]
        self._sizes: dict[str, int] = {}
        for name in reached:
            for rule in rules_of(rules[name]):
                if rule.name not in self.recursive:
                    self._measure(rule)

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
                return part if name in self.recursive else self.spelled(self._rules[name])
        return rebuilt(part, self.spelled)

    def plain(self, part: Expression) -> Expression:
        """The part without rules; it must not lead to one that is recursive."""
        return self.plain(self._rules[part.name]) if isinstance(part, Rule) else rebuilt(part, self.plain)

    def _is_plain(self, part: Expression) -> bool:
        return not any(rule.name in self.recursive for rule in rules_of(part))

    def _measure(self, rule: Rule, depth: int = 0) -> int:
        """How many parts a rule has when it is written out; refused where it would be endless work."""
        if depth > MOST_DEEP:
            raise refused(rule.line, f"rules are more than {MOST_DEEP} within each other")
        size = self._sizes.get(rule.name)
        if size is None:
            inner = (self._measure(used, depth + 1) for used in rules_of(self._rules[rule.name]))
            size = self._sizes[rule.name] = 1 + sum(1 for _ in walk(self._rules[rule.name])) + sum(inner)
        if size > MOST_PARTS:
            raise refused(rule.line, f"the rule '{rule.name}' has more than {MOST_PARTS:,} parts when written out")
        return size


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
