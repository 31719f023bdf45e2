"""GBNF becomes Lark that allows the same texts, or is refused with its line."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from cProfile import Profile
from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_constrain import follows
from woolly.engine.grammar.gbnf.lark import lark_of
from woolly.errors import RequestError
from woolly.io.cancellation import AbandonedError, Cancellation
from woolly.limits import LIMITS
from woolly.request.format import Format

JSON = r"""
# As llama.cpp writes JSON.
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        (JSON, ["{}", '{"a": [1, -2.5e3, {"b": "\\u00e9 ☃"}]}', '{\n  "a":null}'], ["[]", '{"a":01}', '{"a":1,}']),
        ('root ::= "yes" | "no" [!.]*', ["yes", "no", "no!.!"], ["yes!", "y"]),
        ('root ::= [a-z]* "end"', ["end", "endend", "xend"], ["en", "endx"]),  # a greedy terminal would eat "end"
        ('root ::= "(" root ")" | [a-z]* "end"', ["((xend))", "endend"], ["((end)", "(en)"]),
        ('root ::= x "bc" root?\nx ::= "a" | "ab"', ["abc", "abbc", "abcabbc"], ["ab", "aabc"]),
        ('root ::= [a-z]* root? "z"', ["z", "azz", "zzzz"], ["a", "za"]),  # the characters must be separate terminals
        ('root ::= expr\nexpr ::= expr "+" term | term\nterm ::= [0-9]+', ["1", "12+3+4"], ["+1", "1+"]),
        ('root ::= a-rule*\na-rule ::= ("x" |\n  "y"){2}\n', ["", "xy", "yyxx"], ["x", "xyx"]),
        ("root ::= .\r\n", ["a", "\n", "☃", "😀"], ["", "ab"]),
        (r'root ::= "\x41\u2603\U0001F600\t\"\\\[\]" [\x61\]-^]', ['A☃😀\t"\\[]^', 'A☃😀\t"\\[]a'], ['A☃😀\t"\\[]b']),
        (r"root ::= [^a-y\n]+", ["zZ☃"], ["a", "\n"]),
        (r"root ::= [a-] [\-^]", ["a-", "-^"], ["b-", "aa"]),
        ('root ::= ""', [""], ["a"]),
        ('root ::= ("a" "" | "") ("b" root "c")?', ["a", "", "bc", "abac"], ["b", "ac"]),
        ("root ::= [a/]{0,2}/".removesuffix("/"), ["", "a/", "//"], ["aaa"]),
        ('unused ::= "x"\nroot ::= "a"{2,3} "b"{1,}', ["aab", "aaabbb"], ["ab", "aa", "x"]),
    ],
)  # fmt: skip
def test_a_grammar_allows_its_texts_and_no_others(grammar: str, right: list[str], wrong: list[str]) -> None:
    assert [text for text in right if not follows(Format("gbnf", grammar), text)] == []
    assert [text for text in wrong if follows(Format("gbnf", grammar), text)] == []


def test_a_part_without_recursion_is_one_terminal() -> None:
    assert lark_of('root ::= [a-z]* "end"').count("/") == 2
    assert len(lark_of(JSON)) < 3000, "strings and numbers are not spelled out"


@pytest.mark.parametrize(
    ("grammar", "line", "message"),
    [
        ('rot ::= "a"', 1, "no rule 'root'"),
        ('root ::= "a"\n\nother ::= missing', 3, "no rule 'missing'"),
        ('root ::= "a\nb"', 1, "does not end"),
        ("root ::= [a", 1, "does not end"),
        ('root ::= ("a"\n', 1, "never closed"),
        ('root ::= "a")', 1, "')'"),
        ('root ::= "a"\nroot ::= "b"', 2, "twice"),
        ('root = "a"', 1, "::="),
        ('root ::= "a" |\n\n "\\q"', 3, r"\q"),
        (r'root ::= "\ud800"', 1, "no character"),
        (r'root ::= "\x4"', 1, "no character"),
        ("root ::= [z-a]", 1, "backwards"),
        ('root ::= "a"{3,2}', 1, "{3,2}"),
        ('root ::= "a"{100000}', 1, "10,000"),
        ('root ::= "a"{x}', 1, "{n}"),
        ("root ::= <think>", 1, "tokens"),
        ("root ::= !<[17]>", 1, "tokens"),
        ('root ::= "a" $', 1, "'$'"),
        ("root ::= " + "(" * 100_000, 1, "deep"),
        ("root ::= r0\n" + "\n".join(f"r{n} ::= r{n + 1} r{n + 1}" for n in range(20)) + '\nr20 ::= "x"', 9, "parts"),
        ("root ::= r0\n" + "\n".join(f"r{n} ::= r{n + 1}" for n in range(500)) + '\nr500 ::= "x"', 66, "within"),
        ('root ::= "a"' + "*" * 65, 1, "repetitions are more than 64"),
        ('root ::= ("a" root\n | ' + "big " * 20 + ')\nbig ::= "' + "x" * 15_000 + '"', 2, "200,000 parts"),
        ("root ::= (" + "big\n | " * 20 + 'big)\nbig ::= "' + "x" * 15_000 + '"', 14, "200,000 parts"),
        ("", 1, "root"),
    ],
)  # fmt: skip
def test_what_cannot_be_translated_is_refused_with_its_line(grammar: str, line: int, message: str) -> None:
    with pytest.raises(RequestError, match=f"line {line} of") as caught:
        lark_of(grammar)
    assert message in caught.value.message
    assert (caught.value.param, caught.value.line) == ("format", line)


@given(st.text(alphabet='rot:=|()[]{}"\\^-*+?.,0 1ab\n#<>', max_size=60))
def test_whatever_is_written_is_translated_or_refused(text: str) -> None:
    for grammar in (text, "root ::= " + text):
        try:
            assert lark_of(grammar).startswith("start:")
        except RequestError as error:
            assert error.param == "format" and "line" in error.message


def test_what_is_too_deep_for_any_reader_is_refused() -> None:
    deep = "\n".join(f"r{i} ::= {'(' * 60}r{i + 1}{')?' * 60}" for i in range(60))
    with pytest.raises(RequestError, match="too deep within each other; write it with fewer levels"):
        lark_of(f'root ::= r0\n{deep}\nr60 ::= "x"')


def test_sets_have_the_characters_that_they_name_and_no_others() -> None:
    assert lark_of("root ::= [b-da-be]") == "start: /[a-e]/"
    assert lark_of("root ::= [^b-da-be\\x00-`f-\\U0010FFFF]") == "start: /[]/"
    assert lark_of(r"root ::= [\uD000-\uE100]") == r"start: /[\x{D000}-\x{D7FF}\x{E000}-\x{E100}]/"


def test_a_recursive_grammar_of_many_letters_is_read_letter_by_letter() -> None:
    letters = [chr(0x4E00 + number) for number in range(200)]
    grammar = Format("gbnf", "root ::= " + " | ".join(f'"{letter}" root' for letter in letters) + ' | "."')
    assert follows(grammar, f"{letters[3]}{letters[199]}.")
    assert not follows(grammar, f"{letters[3]}")


def calls(grammar: str) -> int:
    """How many functions are called to translate a grammar: as many on every machine."""
    profile = Profile(builtins=False)
    with suppress(RequestError):
        profile.runcall(lark_of, grammar)
    return sum(entry.callcount for entry in profile.getstats())


def a_circle(size: int) -> str:
    rules = "\n".join(f'r{i} ::= "a" r{i + 1}' for i in range(size))
    return f"root ::= r0\n{rules}\nr{size} ::= root?"


def against_the_order(size: int) -> str:
    rules = "\n".join(f'r{i + 1} ::= "a" | r{i}' for i in range(size))
    return f"root ::= r{size}\n{rules}\nr0 ::= root?"


def a_star(size: int) -> str:
    return "root ::= " + " | ".join(f"r{i}" for i in range(size)) + "".join(f"\nr{i} ::= [a] root" for i in range(size))


def plain_rules(size: int) -> str:
    return "root ::= " + " ".join(f"r{i}" for i in range(size)) + "".join(f"\nr{i} ::= [a]" for i in range(size))


@pytest.mark.parametrize("grammar", [a_circle, against_the_order, a_star, plain_rules])
def test_h61_twice_the_rules_take_twice_the_time(grammar: Callable[[int], str]) -> None:
    assert calls(grammar(2_000)) < 2.2 * calls(grammar(1_000))


WIDE = "".join(chr(0x4E00 + 2 * number) for number in range(10_000))
HOSTILE = {
    "a set of many ranges": f"root ::= [{WIDE}] root?",
    "two of them": f"root ::= [{WIDE}] root? [{WIDE}a]",
    "repetitions of nothing": 'root ::= ((((""){9999}){9999}){9999}){9999} root?',
    "repetitions of what may be nothing": "root ::= ([a]?){9999} root?",
    "the same in many rules": "root ::= "
    + " | ".join(f"r{i}" for i in range(140))
    + "".join(f"\nr{i} ::= [a]{{0,3000}} [b] root" for i in range(140)),
    "many terminals": "root ::= " + " | ".join(f'"a{chr(0x4E00 + i)}" root' for i in range(4_500)),
    "long terminals": "root ::= " + " | ".join(f'"{"a" * 3_000}{i}" root' for i in range(20)),
    "one rule in all": "root ::= " + "big " * 10_000 + '\nbig ::= "' + "x" * 19_000 + '"',
    "one rule in all, and itself": "root ::= root? " + "big " * 10_000 + '\nbig ::= "' + "x" * 19_000 + '"',
    "many lines": "root ::= (" + "a\n|" * 20_000 + "a)\na ::= [a]",
}


@pytest.mark.parametrize("grammar", HOSTILE.values(), ids=HOSTILE)
def test_h61_a_hostile_grammar_is_translated_or_refused_in_bounded_work(grammar: str) -> None:
    assert len(grammar.encode()) <= LIMITS.format_bytes
    assert calls(grammar) < 5_000_000


def test_h61_a_translation_stops_when_its_caller_has_gone() -> None:
    cancellation = Cancellation()

    def work() -> str:
        cancellation.cancel()
        return lark_of(JSON)

    with pytest.raises(AbandonedError):
        cancellation.run(work)


LETTERS = "ab"
SHORT = [text for size in range(6) for text in map("".join, product(LETTERS, repeat=size))]


class Written:
    """A random grammar of three rules over two letters, and the texts that it allows, found by trying all."""

    def __init__(self, dice: random.Random) -> None:
        self.rules = {name: self.part(dice, 3) for name in ("root", "one", "two")}
        self.text = "\n".join(f"{name} ::= {self.write(part)}" for name, part in self.rules.items())

    def part(self, dice: random.Random, depth: int) -> tuple[object, ...]:
        kind = dice.choice(
            ["text", "set", "rule"] if depth == 0 else ["text", "text", "set", "rule", "row", "either", "times"]
        )
        inner = lambda: self.part(dice, depth - 1)  # noqa: E731
        match kind:
            case "text":
                return kind, "".join(dice.choices(LETTERS, k=dice.randrange(3)))
            case "set":
                return kind, dice.choice(["[a]", "[b]", "[a-b]", "[^b]"])
            case "rule":
                return kind, dice.choice(["root", "one", "two"])
            case "times":
                return (
                    kind,
                    inner(),
                    dice.choice([("*", 0, 9), ("+", 1, 9), ("?", 0, 1), ("{2}", 2, 2), ("{1,2}", 1, 2)]),
                )
        return kind, *(inner() for _ in range(dice.randint(1, 3)))

    def write(self, part: tuple[object, ...]) -> str:
        match part:
            case ("text", text):
                return f'"{text}"'
            case ("set" | "rule", name):
                return str(name)
            case ("times", inner, (sign, _, _)):
                return f"({self.write(inner)}){sign}"  # type: ignore[arg-type]
            case ("row", *parts):
                return "(" + " ".join(map(self.write, parts)) + ")"  # type: ignore[arg-type]
            case (_, *parts):
                return "(" + " | ".join(map(self.write, parts)) + ")"  # type: ignore[arg-type]
        raise AssertionError

    def texts(self) -> set[str]:
        """The texts of each rule, grown from none to a fixed point; texts longer than those in SHORT are left out."""
        known: dict[str, frozenset[str]] = dict.fromkeys(self.rules, frozenset())

        @cache
        def joined(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
            return frozenset(a + b for a in one for b in other if len(a + b) <= 5)

        def of(part: tuple[object, ...]) -> frozenset[str]:
            match part:
                case ("text", text):
                    return frozenset((str(text),))
                case ("set", ranges):
                    return frozenset(
                        letter for letter in LETTERS if letter in str(ranges).replace("[^b]", "a").replace("a-b", "ab")
                    )
                case ("rule", name):
                    return known[str(name)]
                case ("times", inner, (_, least, most)):
                    once, row = of(inner), frozenset(("",))  # type: ignore[arg-type]
                    rows = [row := joined(row, once) if n else row for n in range(most + 1)]
                    return frozenset().union(*rows[least:])
                case ("row", *parts):
                    row = frozenset(("",))
                    for inner in parts:
                        row = joined(row, of(inner))  # type: ignore[arg-type]
                    return row
                case (_, *parts):
                    return frozenset().union(*map(of, parts))  # type: ignore[arg-type]
            raise AssertionError

        while True:
            now = {name: of(part) for name, part in self.rules.items()}
            if now == known:
                return set(known["root"])
            known = now


def test_random_grammars_allow_the_texts_that_trying_all_finds() -> None:
    compared = empty = 0
    for seed in range(400):
        written = Written(random.Random(seed))
        right = written.texts()
        format = Format("gbnf", written.text)
        try:
            texts = {text for text in SHORT if follows(format, text)}
        except RequestError:
            assert not right, f"seed {seed}: {written.text}"  # a grammar that no text follows
            empty += 1
            continue
        assert texts == right, f"seed {seed}: {written.text}"
        compared += 1
    assert compared > 250, empty
