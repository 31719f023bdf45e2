"""Formats that were made to take long: each is refused, or its answer ends, in time, and nobody beside it waits."""

from __future__ import annotations

import itertools
import string
import time
from functools import reduce
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from tests.engine.asking import asked, said, work_off
from tests.engine.fake import Fake
from tests.text.small import CONTROL, bpe
from woolly.engine import AnswerOptions, Engine, Grammars, Sequence, left_out
from woolly.engine.grammar.constrain import TOO_SLOW, Matcher
from woolly.engine.sampling.stages import Mask
from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import End, Failed, Sampling
from woolly.request.format import Format
from woolly.text import Tokenizer

WARM = Sampling(temperature=1.5, top_k=0, top_p=1.0)
LETTERS = string.ascii_lowercase
PAIRS = [f"{a} {b}" for a, b in itertools.product(LETTERS, repeat=2)]
TRIPLES = [f"{a}{b} {c}" for a, b, c in itertools.product(LETTERS, repeat=3)]
END = 256 + len(PAIRS) + len(TRIPLES)
WORDS = Tokenizer(bpe(PAIRS + TRIPLES, {"<end>": CONTROL}, eos_token_id=END))
GRAMMARS = Grammars(WORDS)
PATIENCE_S = 10 * LIMITS.mask_s  # a neighbour's longest turn, in processor time: the machine may be busy otherwise


def nested(keyword: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema inside twelve levels of one keyword, each beside a schema with a property of its own."""
    names = ({"type": "object", "properties": {f"p{i}": {"type": "string"}}} for i in range(12))
    return reduce(lambda inner, other: {keyword: [inner, other]}, names, schema)


def doubled(keyword: str) -> dict[str, Any]:
    """A chain of definitions, each of which refers to the next one twice."""
    rows = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    return {"$ref": "#/$defs/d0", "$defs": rows | {"d40": {"type": "string"}}}


def lists(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        inner = {"type": "array", "items": inner, "minItems": 100, "maxItems": 100}
    return inner


MANY_PATTERNS = {"type": "string", "allOf": [{"pattern": f"^.*[a-z]{{{i}}}.*{LETTERS[i % 26]}.*$"} for i in range(100)]}
MULTIPLE = {"type": "integer", "multipleOf": 999_983}
SCHEMAS: dict[str, dict[str, Any]] = {
    "patterns that must all hold": MANY_PATTERNS,
    "a large multiple": MULTIPLE,
    "multiples of several": {"allOf": [{"type": "integer", "multipleOf": m} for m in (997, 991, 983, 977, 971)]},
    "a large enum": {"enum": [f"item {i} {i * 7919 % 10007}" for i in range(1_900)]},
    "long texts in an enum": {"enum": ["x" * 30_000 + str(i) for i in range(2)]},
    "a long bounded string": {"type": "string", "minLength": 100_000, "maxLength": 1_000_000},
    "a string of a billion": {"type": "string", "minLength": 10**9},
    "a long list": {"type": "array", "items": {"type": "integer"}, "minItems": 100_000},
    "lists in lists": lists(6),
    "repeats in repeats": {"type": "string", "pattern": "^((((a{1,50}){1,50}){1,50}){1,50})$"},
    "a pattern with a million states": {"type": "string", "pattern": "^(a|b)*a(a|b){1000}$"},
    "letters of all alphabets": {"type": "string", "pattern": "^(\\p{L}|\\p{N}){1,1000}(\\p{Lu}|\\p{Sm}){500}$"},
    "deep allOf": nested("allOf", {"type": "object", "properties": {"a": {"type": "string"}}}),
    "deep oneOf": nested("oneOf", {"type": "object", "properties": {"a": {"type": "string"}}}),
    "choices of choices": {
        "allOf": [{"anyOf": [{"properties": {f"{c}{i}": {"type": "string"}}} for c in "ab"]} for i in range(16)]
    },
    "any of many patterns": {
        "anyOf": [
            {"type": "string", "pattern": f"^(.*{LETTERS[i % 26]}){{{i % 9 + 1}}}[a-z]{{{i}}}$"} for i in range(300)
        ]
    },
    "definitions that double, allOf": doubled("allOf"),
    "definitions that double, anyOf": doubled("anyOf"),
    "itself": {"allOf": [{"$ref": "#"}]},
    "itself or itself": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}},
    "many optional properties": {
        "type": "object",
        "properties": {f"property_{i}": {"type": "integer"} for i in range(600)},
        "additionalProperties": False,
    },
}
TEXTS: dict[str, tuple[str, Any]] = {
    "regex with a million states": ("regex", "(a|b)*a(a|b){1000}"),
    "catastrophic regex": ("regex", "(x+x+)+y"),
    "anything, many times": ("regex", "(.*[a-z].*[0-9]){200}"),
    "regex of repeats in repeats": ("regex", "((((.{1,1000}){1,1000}){1,1000}){1,1000})"),
    "regex of many optional letters": ("regex", "(a?){2000}a{2000}"),
    "regex of many words": ("regex", "(?i)(" + "|".join(f"wort{i}" for i in range(4_000)) + "){1,50}"),
    "lark, left recursion": ("lark", 'start: start start | start "a" | "a" | '),
    "lark, ambiguous": ("lark", "start: s\ns: s s s | s s | /[a-z]/ | "),
    "lark, loops": ("lark", 'start: a*\na: b* | "x"\nb: a* | "x" | "xx"'),
    "lark, deep": (
        "lark",
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1} | r{i + 1}" for i in range(2_000)) + '\nr2000: "a"',
    ),
    "lark, repeats of rules": ("lark", 'start: x{1,1000}\nx: y{1,1000}\ny: z{1,1000}\nz: "a" | "b"'),
    "lark, all must hold": ("lark", "start: T\nT: " + " & ".join(f"/.*{letter}.*/" for letter in LETTERS)),
    "gbnf, left recursion": ("gbnf", 'root ::= root root | root "a" | "a"'),
    "gbnf, repeats of rules": ("gbnf", "root ::= a{0,1000}\na ::= b{0,1000}\nb ::= c{0,1000}\nc ::= [a-z]"),
    "choice of many": ("choice", tuple(f"choice {i} {i * 7919 % 1_000_003}" for i in range(3_000))),
}
HOSTILE = {name: ("schema", schema) for name, schema in SCHEMAS.items()} | TEXTS


def constrained(format: Format) -> Sequence:
    matcher = GRAMMARS.grammar(format).matcher()
    return Sequence([3, 1, 4], limit=203, answer=AnswerOptions(WARM, 1, WORDS.ends, matcher=matcher))


@pytest.mark.parametrize("name", HOSTILE)
def test_h14_a_hostile_format_is_refused_or_answers_in_time_and_its_neighbour_does_not_notice(name: str) -> None:
    GRAMMARS.grammar(Format("json"))  # starts the child and gives it the vocabulary
    kind, value = HOSTILE[name]
    try:
        hostile = constrained(
            Format(kind, value)
        )  # limited by the child's processor time, whatever else the machine does
    except RequestError as error:
        assert "\n" not in str(error)
        hostile = None
    engine = Engine(Fake(vocab=WORDS.vocab))
    neighbour = asked([5, 6, 7], tokens=200)
    alone = Engine(Fake(vocab=WORDS.vocab))
    expected = alone.add(asked([5, 6, 7], tokens=200))
    work_off(alone)
    stream = engine.add(neighbour)
    refused = engine.add(hostile) if hostile is not None else None
    turns = []
    while engine.running or engine.waiting or not engine.inbox.empty():
        begun = time.process_time()
        engine.turn()
        turns.append(time.process_time() - begun)
    assert said(list(stream)) == said(list(expected))
    assert max(turns) < PATIENCE_S
    if refused is not None:
        last = list(refused)[-1]
        assert isinstance(last, End) or (isinstance(last, Failed) and last.error.code == "generation_error")


@pytest.mark.parametrize("schema", [MANY_PATTERNS, MULTIPLE])
def test_h14_what_takes_too_long_to_compile_is_refused_with_one_line_and_the_next_is_compiled(schema: Any) -> None:
    with pytest.raises(RequestError, match=r"too complex: more than 0.5 s or \d+ MiB .* simpler"):
        GRAMMARS.grammar(Format("schema", schema))
    GRAMMARS.grammar(Format("regex", f"[a-z]{{{schema['type'].count('i')}}}"))


def test_a_schema_that_is_not_strict_is_tried_out_too() -> None:
    with pytest.raises(RequestError, match="too complex"):
        left_out(Format("schema", MANY_PATTERNS, strict=False))


def test_control_tokens_in_a_grammar_do_not_lead_around_the_trial() -> None:
    grammar = f"start: <[{END}]> | %json {str(MULTIPLE).replace(chr(39), chr(34)).replace('_', '')}"
    with pytest.raises(RequestError, match="too complex"):
        GRAMMARS.grammar(Format("lark", grammar))


class Stuck(Matcher):
    """A matcher whose mask takes long: the thread that fills it spins until `free` is set."""

    def __init__(self, matcher: Matcher, free: Event) -> None:
        super().__init__(matcher.grammar, matcher._state)
        self.free = free

    def fill(self, mask: Mask) -> None:
        while not self.free.is_set():
            pass
        mask[:] = np.uint32(0xFFFFFFFF)


def test_nobody_waits_for_a_mask_that_takes_too_long_and_answers_of_its_grammar_end() -> None:
    format, free = Format("regex", "[a-z]{3,60}!"), Event()
    slow, same, other = constrained(format), constrained(format), constrained(Format("regex", "[a-z]{20}"))
    assert slow.answer.matcher is not None
    slow.answer.matcher = Stuck(slow.answer.matcher, free)
    engine = Engine(Fake(vocab=WORDS.vocab))
    streams = [engine.add(sequence) for sequence in (slow, same, other)]
    working = Thread(target=work_off, args=(engine,))
    working.start()
    working.join(60)
    assert not working.is_alive()
    free.set()
    for stream in streams[:2]:
        last = list(stream)[-1]
        assert isinstance(last, Failed) and TOO_SLOW in last.error.message and last.error.code == "generation_error"
    assert isinstance(list(streams[2])[-1], End)
    with pytest.raises(RequestError, match="which tokens may follow"):
        GRAMMARS.grammar(format)


def test_an_answer_whose_tokens_take_long_together_ends_and_the_next_of_its_format_begins() -> None:
    format = Format("regex", "[a-z]{3,60}\\?")
    sequence = constrained(format)
    assert sequence.answer.matcher is not None
    sequence.answer.matcher._debt_s = LIMITS.mask_debt_s + 10 * LIMITS.mask_usual_s
    engine = Engine(Fake(vocab=WORDS.vocab))
    stream = engine.add(sequence)
    work_off(engine)
    last = list(stream)[-1]
    assert isinstance(last, Failed) and TOO_SLOW in last.error.message
    assert not constrained(format).answer.matcher.late  # type: ignore[union-attr]
