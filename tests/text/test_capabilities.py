"""Templates are tried for what they do with tools, and conversations changed to what each can show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from woolly.request.messages import Tool, read_messages, read_tools
from woolly.text.output.style import Style
from woolly.text.output.styles import STYLES, with_form
from woolly.text.template.capabilities import fit_to_template
from woolly.text.template.template import ChatTemplate

TEMPLATES = Path(__file__).parents[1] / "data" / "chat" / "templates"
WEATHER = Tool("weather", "of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
HELLO = {"role": "user", "content": "Hello"}


def call(id: str, city: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": {"city": city}}}


def told(id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


TALK = read_messages(
    [
        HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call("call_1", "Köln"), call("call_2", "Bonn")]},
        told("call_1", "drizzle"),
        told("call_2", "sun"),
    ]
)


def write(calls: Sequence[tuple[str, str]]) -> str:
    form = with_form(STYLES[-1]).calls
    assert form is not None and form.form is not None
    return form.form.write(calls)


def shown(template: ChatTemplate, messages: Any, tools: Sequence[Tool] = (WEATHER,)) -> str:
    changed, offered = fit_to_template(messages, tools, template.capabilities, write)
    return template.render(changed, tools=offered).plain


@pytest.mark.parametrize(
    ("name", "tools", "several"),
    [
        ("qwen2.5", True, True),
        ("qwen3", True, True),
        ("llama-3.1", True, False),
        ("mistral-nemo", True, True),
        ("gpt-oss", True, False),
        ("gemma-2", False, False),
        ("smollm2", False, False),
    ],
)
def test_a_template_is_known_by_trying_it(name: str, tools: bool, several: bool) -> None:
    capabilities = ChatTemplate((TEMPLATES / f"{name}.jinja").read_text("utf-8"), bos="<s>", eos="</s>").capabilities
    assert (capabilities.tools, capabilities.several) == (tools, several)
    assert capabilities.short == (name == "mistral-nemo")
    assert capabilities.system == (name != "gemma-2")
    assert not capabilities.text


@pytest.mark.parametrize("tools", [(), (WEATHER,)], ids=["plain", "tools"])
@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_template_shows_a_system_message_before_the_question(path: Path, tools: Sequence[Tool]) -> None:
    template = ChatTemplate(path.read_text("utf-8"), bos="<s>", eos="</s>")
    if not tools and path.stem == "hermes-2-pro":
        pytest.skip("its template wants tools")
    text = shown(template, read_messages([{"role": "system", "content": "Be a pirate."}, HELLO]), tools)
    assert text.count("Be a pirate.") == 1
    assert text.index("Be a pirate.") < text.rindex("Hello")
    alone = fit_to_template(
        read_messages([{"role": "system", "content": "Be a pirate."}]), (), template.capabilities, write
    )[0]
    assert [message["role"] for message in alone] == ["system" if template.capabilities.system else "user"]


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_template_shows_tools_calls_and_results_in_its_way(path: Path) -> None:
    text = shown(ChatTemplate(path.read_text("utf-8"), bos="<s>", eos="</s>"), TALK)
    for word in ("of a city", "Köln", "Bonn", "drizzle", "sun"):
        assert word in text
    assert text.index("Köln") < text.index("drizzle") < text.index("sun")


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_template_shows_what_the_user_says_after_a_result(path: Path) -> None:
    messages = read_messages([*TALK, {"role": "user", "content": "And tomorrow?"}])
    text = shown(ChatTemplate(path.read_text("utf-8"), bos="<s>", eos="</s>"), messages)
    assert text.index("drizzle") < text.index("sun") < text.index("And tomorrow?")


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_every_template_shows_a_tool_without_a_description_and_without_parameters(path: Path) -> None:
    template = ChatTemplate(path.read_text("utf-8"), bos="<s>", eos="</s>")
    for tool in ({"name": "now"}, {"name": "now", "parameters": {"type": "object"}}, {"name": "now", "parameters": {}}):
        assert "now" in shown(template, [HELLO], read_tools([tool]))


def test_calls_that_a_template_takes_one_by_one_stand_before_their_results() -> None:
    text = shown(ChatTemplate((TEMPLATES / "llama-3.1.jinja").read_text("utf-8"), bos="<s>"), TALK)
    places = [text.index(word) for word in ("Köln", "drizzle", "Bonn", "sun")]
    assert places == sorted(places)


def test_a_template_without_tools_has_them_in_the_system_message_and_results_as_text() -> None:
    template = ChatTemplate((TEMPLATES / "smollm2.jinja").read_text("utf-8"))
    messages, offered = fit_to_template(
        ({"role": "system", "content": "Be kind."}, *TALK), (WEATHER,), template.capabilities, write
    )
    assert offered is None
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"].startswith("Be kind.\n\n")
    assert json.dumps(WEATHER.record["function"], ensure_ascii=False) in messages[0]["content"]
    assert messages[2]["content"].count("<tool_call>") == 2
    assert messages[3]["content"] == (
        "<tool_response>\ndrizzle\n</tool_response>\n<tool_response>\nsun\n</tool_response>"
    )


def test_a_question_after_a_result_goes_with_it_where_roles_alternate() -> None:
    template = ChatTemplate((TEMPLATES / "gemma-2.jinja").read_text("utf-8"), bos="<s>")
    messages, _ = fit_to_template(
        (*TALK, {"role": "user", "content": "And now?"}), (WEATHER,), template.capabilities, write
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"].startswith("Hello\n\n")  # it takes no system message
    assert messages[2]["content"].endswith("</tool_response>\n\nAnd now?")


def test_ids_that_a_template_would_refuse_become_ids_of_nine_letters() -> None:
    template = ChatTemplate((TEMPLATES / "mistral-nemo.jinja").read_text("utf-8"), bos="<s>", eos="</s>")
    messages, _ = fit_to_template(TALK, (WEATHER,), template.capabilities, write)
    ids = [each["id"] for each in messages[1]["tool_calls"]]
    assert [len(id) for id in ids] == [9, 9]
    assert [message["tool_call_id"] for message in messages[2:]] == ids
    unchanged, _ = fit_to_template(
        read_messages([HELLO, {**TALK[1], "tool_calls": [call("abcdefgh1", "Köln")]}]), (), template.capabilities, write
    )
    assert unchanged[1]["tool_calls"][0]["id"] == "abcdefgh1"


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_calls_in_the_form_of_a_style_are_read_as_these_calls(style: Style) -> None:
    from tests.text.test_output import calls, joined, output, read

    chosen = with_form(style)
    assert chosen.calls is not None and chosen.calls.form is not None
    count = 1 if chosen.calls.form.between is None else 3
    text = chosen.calls.form.write([("weather", '{"city": "Köln"}')] * count)
    for certain in (False, True):
        events = read(list(text), chosen, output=output(chosen), tools=[WEATHER], certain=certain)
        assert calls(events) == [("weather", {"city": "Köln"})] * count
        assert joined(events) == ("", "")
