"""Messages and tools are read as every template takes them; what is wrong is refused by its place."""

from __future__ import annotations

from typing import Any

import pytest

from woolly.errors import RequestError
from woolly.limits import LIMITS
from woolly.request import Arguments, Call, CallStart, End, Request, Text, Timings, Usage, complete
from woolly.request.messages import Tool, read_messages, read_tools

HELLO = {"role": "user", "content": "Hello"}
CALL = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
ASKED = {"role": "assistant", "tool_calls": [CALL]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def test_a_tool_is_read_with_and_without_its_envelope() -> None:
    bare = {"name": "weather", "description": "of a city", "parameters": SCHEMA, "strict": True}
    tool = Tool("weather", "of a city", SCHEMA, strict=True)
    assert read_tools([bare, {**bare, "name": "b"}])[0] == tool
    assert read_tools([{"type": "function", "function": bare}]) == read_tools([tool]) == (tool,)


def test_a_tool_without_parameters_takes_none() -> None:
    (tool,) = read_tools([{"type": "function", "function": {"name": "now"}}])
    assert tool.record == {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    }


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ("weather", "tools"),
        ([5], "tools[0]"),
        ([{"type": "web_search"}], "tools[0]"),
        ([{"type": "function", "function": 5}], "tools[0].function"),
        ([{"name": "two words"}], "tools[0].name"),
        ([{"name": "auto"}], "tools[0].name"),
        ([{"name": "a" * 129}], "tools[0].name"),
        ([{"description": "nameless"}], "tools[0].name"),
        ([{"name": "a", "description": 5}], "tools[0].description"),
        ([{"name": "a", "parameters": "none"}], "tools[0].parameters"),
        ([{"name": "a", "parameters": {"type": "array"}}], "tools[0].parameters"),
        ([{"name": "a"}, {"name": "b"}, {"name": "a"}], "tools[2].name"),
        ([{"name": f"t{i}"} for i in range(LIMITS.tools + 1)], "tools"),
    ],
)
def test_a_wrong_tool_is_refused_by_its_place(tools: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_tools(tools)
    assert caught.value.param == param


def test_a_choice_is_a_word_or_the_name_of_a_tool() -> None:
    tools: Any = [{"name": "weather"}]
    for choice in ("auto", "none", "required", "weather"):
        assert Request(messages=(HELLO,), tools=tools, tool_choice=choice).tool_choice == choice
    for choice, offered in (("fly", tools), ("required", ()), (5, tools)):
        with pytest.raises(RequestError) as caught:
            Request(messages=(HELLO,), tools=offered, tool_choice=choice)
        assert caught.value.param == "tool_choice"


def test_only_a_chat_has_tools() -> None:
    with pytest.raises(RequestError, match="only a chat"):
        Request(prompt="a", tools=(Tool("weather"),))


def test_a_call_and_its_result_are_read_as_templates_know_them() -> None:
    parts = [{"type": "text", "text": "21 "}, {"type": "text", "text": "degrees"}]
    messages = read_messages([HELLO, ASKED, {"role": "tool", "tool_call_id": "1", "content": parts}])
    assert messages[1]["content"] == ""  # templates join it to a text
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == {"city": "Köln"}
    assert (messages[2]["content"], messages[2]["name"]) == ("21 degrees", "weather")
    nameless = read_messages([HELLO, ASKED, {"role": "tool", "content": "21"}])
    assert (nameless[2]["name"], nameless[2]["tool_call_id"]) == ("weather", "1")


def test_results_without_ids_are_those_of_the_calls_that_wait() -> None:
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("weather", "now", "weather")]
    asked = {"role": "assistant", "tool_calls": calls}
    results = [{"role": "tool", "content": "x", **name} for name in ({"name": "weather"}, {"name": "weather"}, {})]
    messages = read_messages([HELLO, asked, *results, asked, *results])
    answered = [(message["tool_call_id"], message["name"]) for message in messages if message["role"] == "tool"]
    names = ("weather", "weather", "now")
    ids = [f"call0000{number}" for number in (0, 2, 1, 3, 5, 4)]
    assert answered == list(zip(ids, names * 2, strict=True))


def test_the_arguments_of_a_call_that_was_cut_short_are_not_lost() -> None:
    cut = {"id": "1", "function": {"name": "weather", "arguments": '{"city": "Kö'}}
    (_, message) = read_messages([HELLO, {"role": "assistant", "content": None, "tool_calls": [cut]}])
    assert message["tool_calls"][0]["function"]["arguments"] == {"arguments": '{"city": "Kö'}


def test_a_developer_is_the_system_and_a_thought_has_all_its_names() -> None:
    messages = read_messages([{**HELLO, "role": "developer"}, {**HELLO, "role": "assistant", "reasoning": "hm"}])
    assert messages[0]["role"] == "system"
    assert [messages[1][name] for name in ("reasoning", "reasoning_content", "thinking")] == ["hm"] * 3


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([HELLO, {"role": "tool", "tool_call_id": "1", "content": "21"}], "messages[1].role"),
        ([HELLO, ASKED, {"role": "tool", "tool_call_id": "2", "content": "21"}], "messages[2].role"),
        ([HELLO, ASKED, {"role": "tool", "tool_call_id": ["1"], "content": "21"}], "messages[2].role"),
        ([HELLO, ASKED, {"role": "tool", "tool_call_id": "1"}], "messages[2].content"),
        ([HELLO, {"role": "assistant"}], "messages[1].content"),
        ([HELLO, {"role": "assistant", "tool_calls": "x"}], "messages[1].tool_calls"),
        ([HELLO, {"role": "assistant", "tool_calls": [{"id": "1"}]}], "messages[1].tool_calls[0]"),
        (
            [HELLO, {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "[1]"}}]}],
            "messages[1].tool_calls[0].function.arguments",
        ),
    ],
)
def test_a_wrong_call_or_result_is_refused_by_its_place(messages: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_messages(messages)
    assert caught.value.param == param


def test_the_pieces_of_calls_join_to_calls() -> None:
    end = End("calls", Usage(1, 0, 4), Timings(0, 0, 0, 0, 0), 1)
    events = [
        Text("I ask.", (1,)),
        CallStart("1", "weather"),
        Arguments('{"city"', (2,)),
        Arguments(': "Köln"}', (3,)),
        CallStart("2", "now"),
        Arguments("{}", (4,)),
        end,
    ]
    completion = complete(events)
    assert (completion.text, completion.tokens, completion.finish_reason) == ("I ask.", [1, 2, 3, 4], "calls")
    assert completion.calls == (Call("1", "weather", '{"city": "Köln"}'), Call("2", "now", "{}"))


class Counted(str):
    """An id that counts how often it is compared or looked up."""

    looks = 0
    __slots__ = ()

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return super().__eq__(other)


@pytest.mark.parametrize("named", ["id", "name", "nothing"])
def test_a_result_finds_its_call_at_once_among_any_number(named: str) -> None:
    looks = []
    for size in (100, 200):
        Counted.looks = 0
        calls = [
            {"id": Counted(f"c{n}"), "type": "function", "function": {"name": Counted(f"f{n}"), "arguments": "{}"}}
            for n in range(size)
        ]
        known: Any = {"id": lambda n: {"tool_call_id": f"c{n}"}, "name": lambda n: {"name": f"f{n}"}}
        results = [{"role": "tool", "content": "r", **known.get(named, lambda n: {})(n)} for n in reversed(range(size))]
        messages = read_messages([HELLO, {"role": "assistant", "tool_calls": calls}, *results])
        expected = range(size) if named == "nothing" else reversed(range(size))
        assert [message["tool_call_id"] for message in messages[2:]] == [f"c{n}" for n in expected]
        looks.append(Counted.looks)
    assert looks[1] < 2.5 * looks[0]
