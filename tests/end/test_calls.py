"""The default model is far too small to call a tool by itself: here the grammar does, and every call is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for

from tests.server.process import Process, environ
from tests.server.test_reasoning import chunks
from woolly.llm.llm import LLM
from woolly.request import Arguments, CallStart, Options, complete
from woolly.text import finite

WORD = {"type": "string", "maxLength": 12}
DAY = {"enum": ["today", "tomorrow", "never"]}
POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


SCHEMAS: dict[str, dict[str, Any]] = {
    "now": {"type": "object", "properties": {}},
    "set_alarm": of("hour", "day", hour={"type": "integer", "minimum": 0, "maximum": 23}, day=DAY),
    "switch_lamp": of("on", on={"type": "boolean"}, room={"enum": ["kitchen", "hall"]}),
    "say": of("text", text={"type": "string", "minLength": 1, "maxLength": 40}),
    "move": of("to", to=POINT),
    "draw": of("points", points={"type": "array", "items": POINT, "minItems": 1, "maxItems": 3}),
    "weather": of("city", city=WORD, days={"type": "integer", "minimum": 1, "maximum": 14}),
    "convert": of("value", "unit", value={"type": "number"}, unit={"enum": ["m", "km", "mi"]}),
    "search": of(
        "words", words={"type": "array", "items": WORD, "minItems": 1, "maxItems": 4}, exact={"type": "boolean"}
    ),
    "remember": of("key", key=WORD, value={"anyOf": [WORD, {"type": "number"}, {"type": "null"}]}),
    "call_number": of("number", number={"type": "string", "pattern": "^[0-9]{3,7}$"}),
    "book": of(
        "date", date={"type": "string", "pattern": "^20[0-9]{2}-(0[1-9]|1[0-2])-[0-2][0-9]$"}, seats={"enum": [1, 2, 3]}
    ),
    "tag": of("tags", tags={"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 5}),
    "nest": of("outer", outer=of("inner", inner=of("leaf", leaf={"type": "boolean"}))),
    "choose": of("kind", kind={"const": "sheep"}, count={"type": "integer", "minimum": 0, "maximum": 9}),
    "tree": {
        "$defs": {
            "node": of("name", name={"enum": ["leaf"]}, left={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
        },
        **of("root", root={"$ref": "#/$defs/node"}),
    },
    "translate": of("text", "to", text=WORD, to={"enum": ["de", "fr", "日本語"]}),
    "scale": of("by", by={"type": "number", "minimum": 0, "maximum": 1}),
    "either": {**of("a", a={"oneOf": [{"type": "integer", "minimum": 0, "maximum": 5}, {"type": "boolean"}]})},
    "note": of("title", "body", title=WORD, body={"type": "string", "maxLength": 60}, pinned={"type": "boolean"}),
}
TOOLS: list[Any] = [
    {"name": name, "description": f"The tool {name}.", "parameters": schema, "strict": bool(index % 2)}
    for index, (name, schema) in enumerate(SCHEMAS.items())
]
ASKED = [{"role": "user", "content": "Do something, please."}]
HOT: Options = {"temperature": 1.5, "top_k": 0, "top_p": 1.0, "max_tokens": 400}
assert len(SCHEMAS) == 20


@pytest.fixture(scope="module")
def llm(smollm2: Path) -> Iterator[LLM]:
    with LLM(smollm2, context=4096) as model:
        yield model


def called(llm: LLM, choice: str, tools: list[Any], seed: int) -> str | None:
    """The name that was called; the call is valid, and its pieces are its whole.

    None where the answer was cut: a number may have digits and a tree branches without end, and a hot model need not
    come to one within its tokens. Then it says so, and the call that was begun stays one.
    """
    events = list(llm.chat_stream(ASKED, tools=tools, tool_choice=choice, seed=seed, **HOT))
    completion = complete(events)
    assert (completion.text, len(completion.calls)) == ("", 1)
    (call,) = completion.calls
    assert "".join(event.text for event in events if isinstance(event, Arguments)) == call.arguments
    assert [event.name for event in events if isinstance(event, CallStart)] == [call.name]
    if completion.finish_reason == "length":
        assert completion.usage.completion_tokens == HOT["max_tokens"]
        return None
    assert completion.finish_reason == "calls"
    is_valid(call.name, call.arguments)
    return call.name


def is_valid(name: str, arguments: str) -> None:
    validator_for(SCHEMAS[name]).validate(json.loads(arguments, parse_float=finite))


def until(wanted: int, calls: Iterator[str | None], cut: int) -> list[str]:
    """The names of so many whole calls; at most `cut` answers beside them were cut."""
    names: list[str] = []
    for name in calls:
        names += [name] if name else []
        cut -= not name
        assert cut >= 0
        if len(names) == wanted:
            break
    return names


@pytest.mark.parametrize("tool", TOOLS[1::4], ids=lambda tool: str(tool["name"]))
def test_a_tool_is_called_as_its_schema_says(llm: LLM, tool: Any) -> None:
    assert called(llm, tool["name"], [tool], seed=7) == tool["name"]


@pytest.mark.soak
def test_three_hundred_calls_of_twenty_tools_are_valid(llm: LLM) -> None:
    for tool in TOOLS:
        names = until(10, (called(llm, tool["name"], TOOLS, seed) for seed in count()), cut=5)
        assert names == [tool["name"]] * 10
    chosen = until(100, (called(llm, "required", TOOLS, seed) for seed in count()), cut=20)
    assert len(set(chosen)) > 5  # the choice among them is the model's


@pytest.mark.soak
def test_the_choices_of_a_streamed_answer_are_the_valid_calls_of_a_whole_one(smollm2: Path, tmp_path: Path) -> None:
    with Process(environ(tmp_path, tmp_path), str(smollm2), "--context", "4096") as server:
        for index, tool in enumerate(TOOLS):
            offered = [{"type": "function", "function": other} for other in (tool, TOOLS[index - 1])]
            body = {"messages": ASKED, "tools": offered, "tool_choice": "required", "n": 2, "seed": index, **HOT}
            unstreamed, streamed = (
                server.ask("POST", "/v1/chat/completions", {**body, "stream": stream})[2] for stream in (False, True)
            )
            choices = [choice for chunk in chunks(streamed) for choice in chunk["choices"]]
            for choice in unstreamed["choices"]:
                (call,) = choice["message"]["tool_calls"]
                own = [row for row in choices if row["index"] == choice["index"]]
                pieces = [piece["function"] for row in own for piece in row["delta"].get("tool_calls", ())]
                assert "".join(piece["arguments"] for piece in pieces) == call["function"]["arguments"]
                assert [piece["name"] for piece in pieces if "name" in piece] == [call["function"]["name"]]
                assert [row["finish_reason"] for row in own if row["finish_reason"]] == [choice["finish_reason"]]
                if choice["finish_reason"] != "length":
                    is_valid(**call["function"])
