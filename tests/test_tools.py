"""Tools in the library: calls that a grammar makes valid, whatever the model is, and calls that it makes by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for

from tests.tiny import CHATML, scripted, tiny
from woolly.engine.grammar import compiler
from woolly.engine.grammar.compiler import COMPILER
from woolly.errors import RequestError
from woolly.io.cancellation import AbandonedError, Cancellation
from woolly.limits import LIMITS
from woolly.llm.llm import LLM
from woolly.request import Arguments, CallStart, Options, Request, Text, complete
from woolly.request.messages import Tool
from woolly.text.output.style import Style
from woolly.text.output.styles import STYLES

ASKED = [{"role": "user", "content": "Wake me."}]
ALARM = {
    "type": "object",
    "properties": {
        "hour": {"type": "integer", "minimum": 0, "maximum": 23},
        "day": {"enum": ["today", "tomorrow"]},
        "loud": {"type": "boolean"},
        "tune": {"type": "array", "items": {"enum": ["do", "re", "mi"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["hour", "day", "tune"],
}
NOTHING = {"type": "object", "properties": {}}
SCHEMAS = {"set_alarm": ALARM, "now": NOTHING}
TOOLS: list[Any] = [{"name": name, "parameters": schema} for name, schema in SCHEMAS.items()]
HOT: Options = {"temperature": 1.5, "max_tokens": 200}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = tiny(tmp_path_factory.mktemp("models") / "talker.gguf", vocab=512, seed=5, context=1024)
    with LLM(path, threads=1, context=1024) as model:
        yield model


def valid(name: str, arguments: str) -> bool:
    return bool(validator_for(SCHEMAS[name]).is_valid(json.loads(arguments)))


@pytest.mark.parametrize("choice", ["required", "set_alarm", "now"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_call_that_is_asked_for_comes_and_its_schema_allows_it(llm: LLM, choice: str, strict: bool) -> None:
    tools = [{**tool, "strict": strict} for tool in TOOLS]
    names = set()
    for seed in range(5):
        answer = llm.chat(ASKED, tools=tools, tool_choice=choice, seed=seed, **HOT)
        assert (answer.text, answer.finish_reason, len(answer.calls)) == ("", "calls", 1)
        assert valid(answer.calls[0].name, answer.calls[0].arguments)
        names.add(answer.calls[0].name)
    assert names <= (SCHEMAS.keys() if choice == "required" else {choice})


def test_a_call_comes_in_pieces_that_join_to_the_whole(llm: LLM) -> None:
    how: Any = {"tools": TOOLS, "tool_choice": "set_alarm", "seed": 3, **HOT}
    events = list(llm.chat_stream(ASKED, **how))
    starts = [event for event in events if isinstance(event, CallStart)]
    pieces = [event.text for event in events if isinstance(event, Arguments) and event.text]
    assert len(starts) == 1 and len(pieces) > 3
    assert "".join(pieces) == llm.chat(ASKED, **how).calls[0].arguments
    assert complete(events).usage.completion_tokens == len(complete(events).tokens)


@pytest.mark.parametrize("left", [5, 25])
def test_t17_a_call_that_the_limit_cuts_short_is_told_as_far_as_it_came(llm: LLM, left: int) -> None:
    uncut = llm.chat(ASKED, tools=TOOLS, tool_choice="set_alarm", seed=1, **HOT)
    cut = llm.chat(
        ASKED, tools=TOOLS, tool_choice="set_alarm", seed=1, temperature=1.5, max_tokens=len(uncut.tokens) - left
    )
    assert cut.finish_reason == "length"
    assert uncut.calls[0].arguments.startswith(cut.calls[0].arguments)
    assert cut.text == ""


@pytest.mark.parametrize("style", {style.name: style for style in STYLES}.values(), ids=lambda style: style.name)
def test_every_style_can_be_asked_for_a_call(tmp_path: Path, style: Style) -> None:
    template = "{# " + " ".join(style.found_by) + " #}" + CHATML
    path = tiny(tmp_path / "a.gguf", vocab=512, seed=2, context=2048, meta={"tokenizer.chat_template": template})
    with LLM(path, threads=1, context=2048) as llm:
        for choice in ("required", "set_alarm"):
            answer = llm.chat(ASKED, tools=TOOLS, tool_choice=choice, seed=4, **HOT)
            assert answer.finish_reason == "calls"
            assert all(valid(call.name, call.arguments) for call in answer.calls)


def test_a_strict_schema_that_cannot_be_kept_to_is_refused_and_another_is_noted(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "maxItems": 1}}}
    tool = {"name": "f", "parameters": schema}
    with pytest.raises(RequestError, match="uniqueItems") as caught:
        llm.chat(ASKED, tools=[TOOLS[1], {**tool, "strict": True}])
    assert caught.value.param == "tools[1].function.parameters"
    request = Request(messages=tuple(ASKED), tools=(tool,), tool_choice="required")  # type: ignore[arg-type]
    notes = llm.prepare(request).notes
    assert any("uniqueItems" in note and "tools[0]" in note for note in notes)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """A model whose context has room for many tools."""
    path = tiny(tmp_path_factory.mktemp("models") / "roomy.gguf", vocab=512, context=8192)
    with LLM(path, threads=1) as model:
        yield model


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The grammars that the child process is asked for, each of which takes it half a second."""
    asked: list[str] = []

    def ask(request: bytes) -> tuple[str, str]:
        asked.append(json.loads(request)["grammar"])
        return "T", json.dumps({"seconds": 0.5, "messages": []})

    monkeypatch.setattr(COMPILER, "ask", ask)
    monkeypatch.setattr(compiler, "_VERDICTS", compiler._Verdicts())
    yield asked


def asking(count: int, choice: str, *, strict: bool, mark: str) -> Request:
    """A request with so many tools, which no other has."""
    schema = {"type": "object", "properties": {mark: {"type": "integer"}}}
    tools = tuple(
        Tool(f"{mark}{index}", parameters=schema | {"title": str(index)}, strict=strict) for index in range(count)
    )
    return Request(messages=tuple(ASKED), tools=tools, tool_choice=choice)


def test_h61_strict_tools_are_compiled_once_and_all_together(roomy: LLM, compiling: list[str]) -> None:
    roomy.prepare(asking(9, "required", strict=True, mark="once"))
    assert len(compiling) == 1


@pytest.mark.parametrize(("choice", "strict"), [("none", True), ("required", False)])
def test_h61_the_tools_of_a_request_are_compiled_within_one_budget(
    roomy: LLM, compiling: list[str], choice: str, strict: bool
) -> None:
    with pytest.raises(RequestError, match="too complex: more than 2 s or 128 MiB are needed to compile them"):
        roomy.prepare(asking(10, choice, strict=strict, mark=f"many_{choice}"))
    assert len(compiling) == LIMITS.grammars_s / 0.5


def test_h61_the_tool_for_which_too_little_is_left_is_not_said_to_be_too_complex_alone(
    roomy: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []

    def ask(request: bytes) -> tuple[str, str]:
        seconds.append(json.loads(request)["seconds"])
        return ("L", "crash") if seconds[-1] < 0.5 else ("T", json.dumps({"seconds": 0.45, "messages": []}))

    monkeypatch.setattr(COMPILER, "ask", ask)
    with pytest.raises(RequestError, match="tools of the request are too complex: more than 2 s") as caught:
        roomy.prepare(asking(10, "none", strict=True, mark="left"))
    assert caught.value.param == "tools[4].function.parameters"
    assert seconds[:4] == [0.5] * 4 and 0.19 < seconds[4] < 0.21


def test_h61_schemas_that_take_too_long_together_are_refused_as_those_of_the_tools(
    roomy: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []

    def ask(request: bytes) -> tuple[str, str]:
        seconds.append(json.loads(request)["seconds"])
        return ("L", "crash") if len(seconds) == 1 else ("T", json.dumps({"seconds": 0.01, "messages": []}))

    monkeypatch.setattr(COMPILER, "ask", ask)
    with pytest.raises(RequestError, match="the schemas of the tools together: the format is too complex") as caught:
        roomy.prepare(asking(3, "required", strict=True, mark="together"))
    assert caught.value.param == "tools"
    assert len(seconds) == 4 and max(seconds) <= LIMITS.grammar_s  # all at once, and then each, to name one


def test_h61_nothing_more_is_compiled_for_a_caller_that_has_gone(
    roomy: LLM, compiling: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancellation = Cancellation()

    def ask(request: bytes) -> tuple[str, str]:
        cancellation.cancel()
        compiling.append("")
        return "T", json.dumps({"seconds": 0.0, "messages": []})

    monkeypatch.setattr(COMPILER, "ask", ask)
    with pytest.raises(AbandonedError):
        cancellation.run(lambda: roomy.prepare(asking(10, "none", strict=True, mark="gone")))
    assert len(compiling) == 1


def test_a_template_without_tools_is_told_of_them_and_that_is_noted(llm: LLM) -> None:
    request = Request(messages=tuple(ASKED), tools=tuple(TOOLS))
    prepared = llm.prepare(request)
    assert "tools (described in the system message)" in prepared.notes
    assert "set_alarm" in llm.detokenize(prepared.ids)
    assert llm.prepare(Request(messages=tuple(ASKED))).notes == ()


def test_a_template_without_system_messages_has_them_in_the_users_and_that_is_noted(tmp_path: Path) -> None:
    none = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
    path = tiny(tmp_path / "a.gguf", meta={"tokenizer.chat_template": none}, context=1024)
    ruled = ({"role": "system", "content": "Be a sheep."}, *ASKED)
    with LLM(path, threads=1, context=1024) as llm:
        prepared = llm.prepare(Request(messages=ruled))
        assert prepared.notes == ("system (told in the first message of the user)",)
        assert "user\nBe a sheep.\n\nWake me." in llm.detokenize(prepared.ids)
        assert llm.prepare(Request(messages=tuple(ASKED))).notes == ()
        offered = llm.detokenize(llm.prepare(Request(messages=ruled, tools=tuple(TOOLS))).ids)
        assert "user\nBe a sheep.\n\nWake me.\n\nYou can use tools." in offered


def test_an_effort_that_a_template_refuses_is_told_in_its_words_and_that_is_noted(tmp_path: Path) -> None:
    known = "{% if reasoning_effort not in ['no_think', 'high'] %}{{ raise_exception('no') }}{% endif %}"
    path = tiny(tmp_path / "a.gguf", meta={"tokenizer.chat_template": known + "{{ reasoning_effort }}" + CHATML})
    with LLM(path, threads=1, context=256) as llm:
        request = Request(messages=tuple(ASKED), chat_template_kwargs={"reasoning_effort": "none"})
        prepared = llm.prepare(request)
        assert prepared.notes == ("reasoning_effort (told as no_think)",)
        assert llm.detokenize(prepared.ids).startswith("no_think")


CALL = ("<tool_call>", '{"name": "set_alarm", "arguments": {"hour": 99}}</tool_call>')


def test_a_free_call_is_the_models_own_and_a_strict_one_what_the_schema_allows(tmp_path: Path) -> None:
    path = scripted(tmp_path / "caller.gguf", "I call. ", *CALL)
    with LLM(path, threads=1, context=1024) as llm:
        free = llm.chat(ASKED, tools=TOOLS, temperature=0)
        assert (free.text, free.calls[0].arguments) == ("I call.", '{"hour": 99}')
        strict = llm.chat(ASKED, tools=[{**TOOLS[0], "strict": True}], temperature=0, max_tokens=200)
        assert (strict.text, strict.finish_reason) == ("I call.", "calls")
        assert valid("set_alarm", strict.calls[0].arguments)
        nothing = llm.chat(ASKED, tools=TOOLS, tool_choice="none", temperature=0)
        assert (nothing.text, nothing.calls) == ("I call. " + "".join(CALL), ())


def test_text_stays_text_where_a_call_would_be_strict(tmp_path: Path) -> None:
    path = scripted(tmp_path / "talker.gguf", "It is ", "4.")
    with LLM(path, threads=1, context=1024) as llm:
        events = list(llm.chat_stream(ASKED, tools=[{**TOOLS[0], "strict": True}], temperature=0))
        assert "".join(event.text for event in events if isinstance(event, Text)) == "It is 4."
        assert complete(events).finish_reason == "stop"
