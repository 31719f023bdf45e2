"""Thoughts, words and calls are told apart in every style, however the text is cut, and nothing is lost."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from itertools import groupby, pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.text.small import CONTROL, USER_DEFINED, bpe
from woolly.request import Arguments, CallStart, End, Event, Logprob, Piece, Text, Thought, Timings, Usage, complete
from woolly.request.messages import Tool, read_tools
from woolly.text import Tokenizer, finite
from woolly.text.output.output import Output, find_output
from woolly.text.output.reader import OutputReader
from woolly.text.output.style import THINK, Style
from woolly.text.output.styles import STYLES

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "output" / "answers.json").read_text())
CASES = GOLDEN["cases"]
BY_NAME = {style.name: style for style in STYLES}
WEATHER = Tool(
    "weather", "", {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
)
PLAIN = BY_NAME["plain"]
# In these styles the marks are ordinary characters; in all others the models' files have control tokens for them.
CHARACTERS = ("hermes", "plain", "granite3", "tool_calls", "seed_oss", "minimax_m3")
END = End("stop", Usage(1, 0, 1), Timings(0, 0, 0, 0, 0), 1)


def output(style: Style) -> Output:
    return Output(style, frozenset(() if style.name in CHARACTERS else style.marks - {"<think>", "</think>"}))


def read(
    pieces: list[str],
    style: Style = PLAIN,
    *,
    opened: bool = False,
    output: Output | None = None,
    tools: Sequence[Tool] = (),
    certain: bool = False,
) -> list[Event]:
    """The events of an answer; each piece comes with a token, its number."""
    part = None
    if opened and style.parts:  # by the part whose end the text has
        text = "".join(pieces)
        thoughts = [part for part in style.parts if part.kind is Thought]
        part = next((part for part in thoughts if part.closing in text), thoughts[0])
    reader = OutputReader(output or Output(style), part, tools, certain=certain)
    events = [event for i, piece in enumerate(pieces) for event in reader.feed(Text(piece, (i,)))]
    return events + reader.feed(END)


def joined(events: list[Event]) -> tuple[str, str]:
    thought = "".join(event.text for event in events if isinstance(event, Thought))
    return thought, "".join(event.text for event in events if isinstance(event, Text))


def calls(events: list[Event]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in complete(events).calls]


def tokens(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Piece) for token in event.tokens]


def bare(text: str, style: Style) -> str:
    """A text without marks and white space."""
    for mark in sorted(style.marks, key=len, reverse=True):  # one mark may be the end of another
        text = text.replace(mark.strip(), "")
    return "".join(text.split())


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_golden_answers_are_told_apart(case: dict[str, Any]) -> None:
    style, text = BY_NAME[case["style"]], case["text"]
    tools = read_tools([GOLDEN["tools"][name] for name in case["tools"]])
    for size in (1, 2, 3, 7, len(text) or 1):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        events = read(pieces, style, opened=case.get("opened", False), output=output(style), tools=tools)
        assert joined(events) == (case["thought"], case["answer"])
        assert calls(events) == [(name, arguments) for name, arguments in case["calls"]]
        assert tokens(events) == list(range(len(pieces)))
        assert complete(events).finish_reason == ("calls" if case["calls"] else "stop")


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
    in_one_piece = joined(read([text], style, opened=opened, output=how))
    assert joined(events) == in_one_piece
    if not style.heads:  # what stands in a head is of the head
        assert "".join(sorted(bare("".join(in_one_piece), style))) == "".join(sorted(bare(text, style)))
    assert tokens(events) == list(range(max(1, len(cuts) - 1)))


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
    events = [event for i in range(3) for event in reader.feed(Text(("<think>", "a", "")[i], (i,), (likely[i],)))]
    events += reader.feed(END)
    assert events == [*(Thought(text, (i,), (likely[i],)) for i, text in enumerate(("", "a", ""))), END]


@pytest.mark.parametrize(
    ("style", "before", "after"),
    [
        ("plain", ("<think>", "hm", " ", "</think>", "\n", "\n"), ()),
        ("harmony", ("<|channel|>", "final", "<|message|>"), ("<|end|>",)),
        ("cohere", ("<|START_RESPONSE|>", "\n"), ("\n", "<|END_RESPONSE|>")),
    ],
)
def test_pieces_with_text_have_no_tokens_of_marks(style: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    pieces = ("It", " is", " <", "4", " .")
    events = read([*before, *pieces, *after], BY_NAME[style], output=output(BY_NAME[style]))
    tokens = [token for event in events if isinstance(event, Text) and event.text for token in event.tokens]
    assert joined(events)[1] == "".join(pieces)
    assert tokens == list(range(len(before), len(before) + len(pieces)))


def test_other_events_pass_as_they_are() -> None:
    call = CallStart("1", "weather")
    assert OutputReader(Output(PLAIN)).feed(call) == [call]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(STYLES),
    st.booleans(),
    st.lists(st.integers(0, 99), max_size=14),
    st.sets(st.integers(0, 199)),
)
def test_t17_any_cut_gives_the_same_calls_and_loses_no_token(
    style: Style, opened: bool, words: list[int], places: set[int]
) -> None:
    """Of texts put together from marks, beginnings of calls and pieces of values."""
    assert style.calls is not None
    values = ['{"name": "weather", "arguments": {"city": "a"}}', "weather", '{"city": "</b>"}', "(city='x')", '"', "}"]
    known = [*sorted(style.written), *values, "\n", " ", "words", "[", "]", ";", ">", "call:"]
    text = "".join(known[word % len(known)] for word in words)
    cuts = sorted({0, len(text), *(place for place in places if place < len(text))})
    pieces = [text[a:b] for a, b in pairwise(cuts)] or [""]
    opened = opened and bool(style.parts)
    events = read(pieces, style, opened=opened, output=output(style), tools=[WEATHER])
    in_one_piece = read([text], style, opened=opened, output=output(style), tools=[WEATHER])
    assert joined(events) == joined(in_one_piece)
    assert calls(events) == calls(in_one_piece)
    assert tokens(events) == list(range(len(pieces)))


@pytest.mark.parametrize(
    ("text", "style"),
    [
        (
            '<tool_call>\n{"name": "weather", "arguments": {"city": "K\\u00f6ln", "days": [1, {}]}}\n</tool_call>',
            "hermes",
        ),
        ('[TOOL_CALLS]weather[ARGS]{"city": "K\\u00f6ln", "days": [1, {}]}', "mistral_args"),
        (
            '<|channel|>commentary to=functions.weather<|message|>{"city": "K\\u00f6ln", "days": [1, {}]}<|call|>',
            "harmony",
        ),
    ],
)
def test_the_arguments_of_a_certain_call_come_while_they_are_written(text: str, style: str) -> None:
    how = output(BY_NAME[style])
    events = read(list(text), how.style, output=how, tools=[WEATHER], certain=True)
    assert calls(events) == [("weather", {"city": "Köln", "days": [1, {}]})]
    pieces = [event.text for event in events if isinstance(event, Arguments)]
    assert "".join(pieces) == text[text.index('{"city') : text.rindex("]}") + 2]
    assert len(pieces) > 20
    assert joined(events) == ("", "")
    assert tokens(events) == list(range(len(text)))


def test_several_certain_calls_come_one_after_another() -> None:
    call = '<tool_call>\n{"name": "weather", "arguments": {"days": 1}}\n</tool_call>'
    events = read(list(f"{call}\n{call}"), tools=[WEATHER], certain=True)
    assert calls(events) == [("weather", {"days": 1})] * 2
    kinds = [kind for kind, _ in groupby(map(type, events))]
    assert kinds == [CallStart, Arguments, CallStart, Arguments, End]
    ids = [event.id for event in events if isinstance(event, CallStart)]
    assert len(set(ids)) == 2


def test_t17_a_certain_call_that_is_cut_short_keeps_what_was_told() -> None:
    events = read(list('<tool_call>{"name": "weather", "arguments": {"city": "K'), tools=[WEATHER], certain=True)
    completion = complete(events)
    assert (completion.text, completion.calls[0].arguments) == ("", '{"city": "K')


def test_t17_a_call_that_is_not_certain_and_is_cut_short_is_text() -> None:
    text = 'Well. <tool_call>{"name": "weather", "arguments": {"city": "K'
    completion = complete(read(list(text), tools=[WEATHER]))
    assert (completion.text, completion.calls, completion.finish_reason) == (text, (), "stop")


def test_text_before_a_call_comes_before_it_is_complete() -> None:
    reader = OutputReader(Output(PLAIN), tools=[WEATHER])
    assert reader.feed(Text("I look. <tool_call>{", (1,))) == [Text("I look.", (1,))]
    assert joined(reader.feed(Text('"name": 5}', (2,)))) == ("", ' <tool_call>{"name": 5}')


@pytest.mark.parametrize("certain", [True, False])
@pytest.mark.parametrize("number", ["2E0678334", "-1e999"])
def test_a_number_that_no_float_can_be_is_the_largest_and_no_end_of_its_call(number: str, certain: bool) -> None:
    text = f'<tool_call>{{"name": "weather", "arguments": {{"city": {number}}}}}</tool_call>'
    (call,) = complete(read(list(text), tools=[WEATHER], certain=certain)).calls
    largest = math.copysign(sys.float_info.max, float(number))
    assert json.loads(call.arguments, parse_float=finite) == {"city": largest}


@pytest.mark.parametrize("nested", ["[" * 10_000, '{"a":' * 10_000])
def test_t17_values_within_values_without_end_are_text(nested: str) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"a": ' + nested
    assert joined(read([text], tools=[WEATHER])) == ("", text)


def test_an_answer_full_of_beginnings_is_read_in_time() -> None:
    """Each of them is read to the end of the text before it turns out to be none."""
    text = "<tool_call><function=weather><parameter=city>" * 2_000
    assert joined(read([text], BY_NAME["qwen3_xml"], tools=[WEATHER])) == ("", text)


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
    output = find_output("a template with " + " and ".join(style.found_by), Tokenizer(bpe()))
    assert output.style is style


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_no_mark_of_a_style_is_part_of_another(style: Style) -> None:
    """Unless it stands at its end: then the longer one begins first."""
    if style.heads:
        marks = {mark for mark in style.ignored if not mark.startswith(style.heads.openings)} | {*style.heads.openings}
    else:
        assert style.calls is not None
        marks = {*style.marks, *style.calls.openings, *style.calls.sections}
    assert not [(one, other) for one, other in permutations(marks, 2) if one in other.removesuffix(one)]
    assert all(mark.strip() for mark in marks)


def test_marks_that_are_control_tokens_count_anywhere_and_user_defined_ones_as_characters() -> None:
    special = {"[THINK]": CONTROL, "[/THINK]": CONTROL, "<think>": USER_DEFINED, "<|sep|>": CONTROL}
    tokenizer = Tokenizer(bpe(special=special))
    output = find_output("", tokenizer)
    assert output.anywhere == {"[THINK]", "[/THINK]"}
    assert output.tokens == {tokenizer.id_of("[THINK]"), tokenizer.id_of("[/THINK]")}
    output = find_output("<|open|> <|end_of_msg|>", tokenizer)
    assert "<|open|>think<|sep|>" in output.anywhere  # a part of the mark is a control token
    assert output.tokens == {tokenizer.id_of("<|sep|>")}


def test_an_id_is_the_models_where_it_chose_it_and_else_one_of_its_own() -> None:
    style = BY_NAME["kimi_k2"]
    assert style.calls is not None and style.calls.form is not None
    text = style.calls.form.write([("weather", '{"city": "Bonn"}')])
    free, *bound = (
        complete(read([text], style, output=output(style), tools=[WEATHER], certain=certain)).calls[0].id
        for certain in (False, True, True)
    )
    assert free == "functions.weather:0"
    assert len({free, *bound}) == 3


@pytest.mark.parametrize("style", [style for style in STYLES if style.calls and style.calls.form], ids=lambda s: s.name)
def test_what_a_grammar_bound_is_given_on_while_it_is_written(style: Style) -> None:
    assert style.calls is not None and style.calls.form is not None
    text = style.calls.form.write([("weather", '{"city": "Bonn", "days": 3}')])
    events = read(list(text), style, output=output(style), tools=[WEATHER], certain=True)
    pieces = [event.text for event in events if isinstance(event, Arguments)]
    assert "".join(pieces) == '{"city": "Bonn", "days": 3}'
    assert len(pieces) > 10
