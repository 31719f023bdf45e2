"""Calls of tools over OpenAI's route: whole and in pieces, beside text and thoughts, and back as results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, real_server
from tests.server.test_reasoning import chunks
from tests.tiny import scripted
from woolly.config.serving import SERVING
from woolly.server.dialects.openai.chat import read

ROUTE = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = ("<tool_call>", '\n{"name": "wea', 'ther", "argu', 'ments": {"city": "Kö', 'ln"}}\n', "</tool_call>")
MODELS = {
    "caller": CALL,
    "talker": ("I look. ", *CALL),
    "thinker": ("<think>", "Where?", "</think>", *CALL, "\n" + "".join(CALL)),
    "writer": ("A <tool_call> ", "is a mark."),
}
ASKED = {"name": "weather", "arguments": '{"city": "Köln"}'}


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with real_server(tmp_path_factory, "spare", context=256, limits={}) as live:
        for name, script in MODELS.items():
            scripted(live.app.config.folders[0] / f"{name}.gguf", *script)
        yield live


def asked(live: Live, model: str, **fields: Any) -> Any:
    body = {"model": model, "messages": HELLO, "temperature": 0, "tools": [WEATHER]} | fields
    status, _, answer = live.ask("POST", ROUTE, body)
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    ("model", "content", "calls"), [("caller", None, 1), ("talker", "I look.", 1), ("thinker", None, 2)]
)
def test_a_whole_answer_has_its_calls(callers: Live, model: str, content: str | None, calls: int) -> None:
    (choice,) = asked(callers, model)["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert message["content"] == content
    assert [(call["type"], call["function"]) for call in message["tool_calls"]] == [("function", ASKED)] * calls
    assert len({call["id"] for call in message["tool_calls"]}) == calls
    assert message.get("reasoning_content") == ("Where?" if model == "thinker" else None)


@pytest.mark.parametrize("model", ["caller", "talker", "thinker"])
def test_a_stream_has_the_same_calls_in_pieces(callers: Live, model: str) -> None:
    unstreamed = asked(callers, model)["choices"][0]["message"]
    choices = [choice for chunk in chunks(asked(callers, model, stream=True)) for choice in chunk["choices"]]
    pieces = [piece for choice in choices for piece in choice["delta"].get("tool_calls", ())]
    arguments: dict[int, str] = {}
    for piece in pieces:
        first = piece["index"] not in arguments
        assert ("id" in piece, "type" in piece, "name" in piece["function"]) == (first,) * 3
        arguments[piece["index"]] = arguments.get(piece["index"], "") + piece["function"]["arguments"]
    assert list(arguments) == list(range(len(unstreamed["tool_calls"])))
    assert list(arguments.values()) == [call["function"]["arguments"] for call in unstreamed["tool_calls"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == (unstreamed["content"] or "")
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]


def test_text_that_looks_like_a_call_is_text(callers: Live) -> None:
    (choice,) = asked(callers, "writer")["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("".join(MODELS["writer"]), "stop")
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("fields", [{"tools": []}, {"tool_choice": "none"}])
def test_without_tools_or_where_none_is_wanted_a_call_is_text(callers: Live, fields: dict[str, Any]) -> None:
    (choice,) = asked(callers, "caller", **fields)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("".join(CALL), "stop")


def test_the_choices_of_an_answer_have_calls_of_their_own(callers: Live) -> None:
    choices = asked(callers, "caller", n=2)["choices"]
    ids = {call["id"] for choice in choices for call in choice["message"]["tool_calls"]}
    assert len(ids) == 2
    streamed = [choice for chunk in chunks(asked(callers, "caller", n=2, stream=True)) for choice in chunk["choices"]]
    for index in range(2):
        pieces = [p for c in streamed if c["index"] == index for p in c["delta"].get("tool_calls", ())]
        assert "".join(piece["function"]["arguments"] for piece in pieces) == ASKED["arguments"]
        assert {piece["index"] for piece in pieces} == {0}


def test_likelihoods_cover_calls_too(callers: Live) -> None:
    unstreamed = asked(callers, "talker", logprobs=True)["choices"][0]
    tokens = [row["token"] for row in unstreamed["logprobs"]["content"]]
    assert tokens == list(MODELS["talker"])
    pieces = chunks(asked(callers, "talker", logprobs=True, stream=True))
    rows = [row for chunk in pieces for c in chunk["choices"] if c["logprobs"] for row in c["logprobs"]["content"]]
    assert [row["token"] for row in rows] == tokens


def test_an_answer_goes_back_with_its_result(callers: Live) -> None:
    message = asked(callers, "caller")["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}
    counts = [
        asked(callers, "caller", messages=[*HELLO, called, outcome])["usage"]["prompt_tokens"]
        for called in (message, {k: v for k, v in message.items() if k != "content"})
        for outcome in (result, {**result, "content": [{"type": "text", "text": "rain"}]})
    ]
    assert len(set(counts)) == 1


def test_tools_that_only_their_provider_has_are_passed_over_and_named(callers: Live) -> None:
    body = {"model": "caller", "messages": HELLO, "temperature": 0, "tools": [{"type": "web_search"}, WEATHER]}
    status, headers, answer = callers.ask("POST", ROUTE, body)
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "tool_calls")
    assert "tools.web_search" in headers["x-woolly-notes"].split(", ")


def test_of_allowed_tools_only_those_are_offered() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [other]}}
    body = {"messages": HELLO, "tools": [WEATHER, other], "tool_choice": allowed}
    (request,) = read(body, {}, SERVING).requests
    assert ([tool.name for tool in request.tools], request.tool_choice) == (["other"], "required")


@pytest.mark.parametrize(
    ("effort", "think"), [("none", False), ("minimal", None), ("low", True), ("high", True), (None, None)]
)
def test_an_effort_is_told_to_the_template(effort: str | None, think: bool | None) -> None:
    (request,) = read({"messages": HELLO, "reasoning_effort": effort}, {}, SERVING).requests
    assert request.chat_template_kwargs.get("reasoning_effort") == effort
    assert request.chat_template_kwargs.get("enable_thinking") == think
