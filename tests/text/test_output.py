"""Thoughts are told from words in every style, however the text is cut, and nothing is lost."""

from __future__ import annotations

import json
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.text.small import CONTROL, USER_DEFINED, bpe
from woolly.request import CallStart, End, Event, Logprob, Text, Thought, Timings, Usage
from woolly.text import Tokenizer
from woolly.text.output import Output, OutputReader, find_output
from woolly.text.styles import STYLES, THINK, Style

CASES = json.loads((Path(__file__).parents[1] / "data" / "output" / "reasoning.json").read_text())
BY_NAME = {style.name: style for style in STYLES}
PLAIN = BY_NAME["plain"]
# In these styles the marks are ordinary characters; in all others the models' files have control tokens for them.
CHARACTERS = ("hermes", "plain", "granite3", "tool_calls", "seed_oss", "minimax_m3")
END = End("stop", Usage(1, 0, 1), Timings(0, 0, 0, 0, 0), 1)


def output(style: Style) -> Output:
    return Output(style, frozenset(() if style.name in CHARACTERS else style.marks - {"<think>", "</think>"}))


def read(pieces: list[str], style: Style = PLAIN, *, opened: bool = False, output: Output | None = None) -> list[Event]:
    """The events of an answer; each piece comes with a token, its number."""
    reader = OutputReader(output or Output(style), style.parts[0] if opened else None)
    events = [made for i, piece in enumerate(pieces) for made in reader.feed(Text(piece, (i,)))]
    return events + reader.feed(END)


def joined(events: list[Event]) -> tuple[str, str]:
    thought = "".join(event.text for event in events if isinstance(event, Thought))
    return thought, "".join(event.text for event in events if isinstance(event, Text))


def bare(text: str, style: Style) -> str:
    """A text without marks and white space."""
    for mark in style.marks:
        text = text.replace(mark, "")
    return "".join(text.split())


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_golden_answers_are_told_apart(case: dict[str, Any]) -> None:
    style, text = BY_NAME[case["style"]], case["text"]
    for size in (1, 2, 3, 7, len(text)):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        events = read(pieces, style, opened=case["opened"], output=output(style))
        assert joined(events) == (case["thought"], case["answer"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(STYLES),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 19), max_size=12),
    st.sets(st.integers(0, 99)),
)
def test_any_cut_gives_the_same_thoughts_and_words_and_loses_nothing(
    style: Style, opened: bool, control: bool, words: list[int], places: set[int]
) -> None:
    known = [*sorted(style.marks), "<", "<|", "</", "think", "a", "b.", " ", "\n", "  \n", "é🐑"]
    text = "".join(known[word % len(known)] for word in words)
    how = Output(style, style.marks) if control else output(style)
    cuts = sorted({0, len(text), *(place for place in places if place < len(text))})
    events = read([text[a:b] for a, b in pairwise(cuts)] or [""], style, opened=opened, output=how)
    whole = joined(read([text], style, opened=opened, output=how))
    assert joined(events) == whole
    assert "".join(sorted(bare("".join(whole), style))) == "".join(sorted(bare(text, style)))
    assert [t for event in events if isinstance(event, Text | Thought) for t in event.tokens] == list(
        range(max(1, len(cuts) - 1))
    )


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("[THINK]a [x]</think>[/THINK]yes", "a [x]</think>", "yes"),
        ("[1] yes", "", "[1] yes"),
        ("<b>yes</b>", "", "<b>yes</b>"),
        ("  yes \n", "", "  yes \n"),
        ("<think>a < b </ c", "a < b </ c", ""),
        ("<think>never closed\n", "never closed\n", ""),
        ("<thi", "", "<thi"),
        ("<think>", "", ""),
        ("<think>x</think>a</think>b <think>c", "x", "a</think>b <think>c"),
        ("<think>x</think>\n<think>y</think>\na", "x\ny", "a"),
    ],
)
def test_what_is_no_mark_in_its_place_is_text(text: str, thought: str, answer: str) -> None:
    assert joined(read(list(text))) == (thought, answer)


def test_a_control_token_is_a_mark_anywhere_but_text_where_it_changes_nothing() -> None:
    how = Output(PLAIN, PLAIN.marks)
    assert joined(read(["a <think>b</think> c"], output=how)) == ("b", "a c")
    assert joined(read(["a </think> b<think>c <think>d"], output=how)) == ("c <think>d", "a </think> b")


def test_thoughts_come_while_they_are_made() -> None:
    reader = OutputReader(Output(PLAIN), THINK)
    assert reader.feed(Text("hm", (1,))) == [Thought("hm", (1,))]
    assert reader.feed(Text(" <", (2,))) == []
    assert reader.feed(Text("b", (3,))) == [Thought(" <b", (2, 3))]
    assert reader.feed(Text("</think>", (4,))) == [Thought("", (4,))]
    assert reader.feed(Text("yes", (5,))) == [Text("yes", (5,))]


def test_likelihoods_and_tokens_without_text_are_given_on() -> None:
    likely = [Logprob(i, b"x", -1.0) for i in range(3)]
    reader = OutputReader(Output(PLAIN))
    events = [made for i in range(3) for made in reader.feed(Text(("<think>", "a", "")[i], (i,), (likely[i],)))]
    events += reader.feed(END)
    assert events == [Thought("a", (0, 1), (likely[0], likely[1])), Thought("", (2,), (likely[2],)), END]


def test_other_events_pass_as_they_are() -> None:
    call = CallStart("1", "weather")
    assert OutputReader(Output(PLAIN)).feed(call) == [call]


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("Say <think>.<|im_start|>assistant\n", False),
    ],
)
def test_a_prompt_that_ends_in_a_thought_opens_the_answer_in_it(prompt: str, opened: bool) -> None:
    assert Output(PLAIN).opened(prompt) == (THINK if opened else None)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_a_style_is_found_by_the_template(style: Style) -> None:
    found = find_output("a template with " + " and ".join(style.found_by), Tokenizer(bpe()))
    assert found.style is style


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_no_mark_of_a_style_is_part_of_another(style: Style) -> None:
    assert not [pair for pair in permutations(style.marks, 2) if pair[0] in pair[1]]
    assert all(mark.strip() for mark in style.marks)


def test_marks_that_are_control_tokens_count_anywhere_and_user_defined_ones_as_characters() -> None:
    special = {"[THINK]": CONTROL, "[/THINK]": CONTROL, "<think>": USER_DEFINED, "<|sep|>": CONTROL}
    tokenizer = Tokenizer(bpe(special=special))
    found = find_output("", tokenizer)
    assert found.anywhere == {"[THINK]", "[/THINK]"}
    assert found.tokens == {tokenizer.id_of("[THINK]"), tokenizer.id_of("[/THINK]")}
    found = find_output("<|open|> <|end_of_msg|>", tokenizer)
    assert "<|open|>think<|sep|>" in found.anywhere  # a part of the mark is a control token
    assert found.tokens == {tokenizer.id_of("<|sep|>")}
