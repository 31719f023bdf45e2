"""Doors: a row is all that a route needs, and one path may have several of them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.server.conftest import HELLO, Live, Start
from woolly.errors import NativeError, WoollyError
from woolly.limits import Serving
from woolly.request import Completion, Text
from woolly.server.app import App
from woolly.server.dialects import DIALECTS, openai
from woolly.server.dialects.openai_chat import CHAT, OpenAIChatBody
from woolly.server.docs import page
from woolly.server.door import Body, Dialect, Events, Generation, Head, Job
from woolly.server.frames import LINES
from woolly.server.openapi import describe

CHATS = ("/v1/chat/completions", "/api/v1/inference/chat", "/api/chat")


class Line(msgspec.Struct):
    text: str


class Fault(msgspec.Struct):
    text: str


def read(body: Body, path: Mapping[str, str], limits: Serving) -> Job:
    """Lines of text."""
    return CHAT.read({name: value for name, value in body.items() if name != "lines"}, path, limits)


def whole(_job: Job, _head: Head, answers: list[Completion]) -> Line:
    return Line(answers[0].text)


async def frames(_job: Job, _head: Head, events: Events) -> AsyncGenerator[Line, None]:
    async for _, event in events:
        if isinstance(event, Text):
            yield Line(event.text)


DOOR = Generation(
    CHAT.path,
    read,
    whole,
    frames,
    OpenAIChatBody,
    "OpenAI",
    prefix="l-",
    framing=LINES,
    accepts=lambda body: "lines" in body,
)


def error(problem: WoollyError, _id: str) -> Fault:
    return Fault(problem.message)


DIALECT = Dialect("lines", (DOOR,), error, ("/lines",))


def serving(live: Live, *dialects: Dialect) -> Live:
    """The same server with other dialects before its own."""
    other = App(live.app.settings, live.app.config, load=live.shelf.load, dialects=(*dialects, *DIALECTS))
    live.app.paths, live.app.doors = other.paths, other.doors
    return live


def ask(live: Live, **fields: Any) -> tuple[int, dict[str, str], Any]:
    return live.ask("POST", CHAT.path, {"messages": HELLO, "max_tokens": 4} | fields)


def test_the_first_door_that_accepts_a_body_answers_it(live: Live) -> None:
    serving(live, DIALECT)
    assert ask(live, lines=True)[2].keys() == {"text"}
    assert ask(live)[2]["object"] == "chat.completion"
    assert ask(live, lines=True, n=0)[2].keys() == {"text"}  # an error has the shape of the door's own dialect
    assert ask(live, n=0)[2].keys() == {"error"}


def test_a_stream_is_framed_as_the_door_says(live: Live) -> None:
    serving(live, DIALECT)
    status, headers, body = ask(live, lines=True, stream=True)
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    assert len([json.loads(line)["text"] for line in body.splitlines()]) == 4


def test_a_stream_is_described_as_it_is_framed() -> None:
    """Also that of a door without whole answers, whose body has no `stream`, and with a tag that no other door has."""
    door = replace(DOOR, whole=None, without=frozenset(["stream"]), tag="Lines")
    document = describe(((DIALECT, door),))
    responses = document["paths"][CHAT.path]["post"]["responses"]
    line = {"anyOf": [{"$ref": "#/components/schemas/Line"}, {"$ref": "#/components/schemas/Fault"}]}
    assert responses["200"]["content"] == {"application/x-ndjson": {"schema": line}}
    assert document["tags"][-1] == {"name": "Lines"} and b"<h2>Lines</h2>" in page(document)


def test_an_error_in_the_middle_of_a_stream_is_framed_by_the_door(live: Live) -> None:
    async def failing(job: Job, head: Head, events: Events) -> AsyncGenerator[Line, None]:
        yield Line("begun")
        raise NativeError("the middle of an answer")

    serving(live, replace(DIALECT, doors=(replace(DOOR, frames=failing),)))
    body = ask(live, lines=True, stream=True)[2]
    assert [json.loads(line)["text"] for line in body.splitlines()] == ["begun", "the middle of an answer"]


def test_of_several_doors_the_last_alone_takes_any_body(live: Live) -> None:
    two = (replace(openai.DIALECT, doors=(CHAT,)), replace(DIALECT, doors=(DOOR,)))
    with pytest.raises(AssertionError, match="the last door alone takes any body"):
        App(live.app.settings, live.app.config, load=live.shelf.load, dialects=two)


@pytest.mark.parametrize("path", CHATS)
def test_limits_of_messages_are_those_of_the_settings(start: Start, path: str) -> None:
    live = start(limits={"messages": 2, "message_parts": 2})
    part = {"type": "text", "text": "x"}

    def status(messages: list[Any]) -> int:
        return live.ask("POST", path, {"messages": messages, "max_tokens": 2})[0]

    assert [status(HELLO * count) for count in (2, 3)] == [200, 400]
    assert [status([{"role": "user", "content": [part] * count}]) for count in (2, 3)] == [200, 400]


def test_limits_of_prompts_and_choices_are_those_of_the_settings(start: Start) -> None:
    live = start(limits={"prompts": 2, "choices": 2})

    def status(path: str, **fields: Any) -> int:
        return live.ask("POST", path, {"max_tokens": 2} | fields)[0]

    batch = "/api/v1/inference/complete/batch"
    assert [status("/v1/completions", prompt=["x"] * count) for count in (2, 3)] == [200, 400]
    assert [status(batch, prompts=["x"] * count) for count in (2, 3)] == [200, 400]
    assert [status("/v1/completions", prompt="x", n=count) for count in (2, 3)] == [200, 400]
    assert [status("/v1/chat/completions", messages=HELLO, n=count) for count in (2, 3)] == [200, 400]


def test_how_hard_to_think_reaches_the_template_and_what_is_not_read_is_noted(live: Live) -> None:
    def asked(**fields: Any) -> tuple[int, str | None]:
        body = {"messages": HELLO, "max_tokens": 2} | fields
        status, headers, _ = live.ask("POST", "/v1/chat/completions", body, {"x-woolly-strict": "1"})
        return status, headers.get("x-woolly-notes")

    assert asked(reasoning_effort="high") == (200, None)
    assert live.shelf.made[0].seen[-1].chat_template_kwargs["reasoning_effort"] == "high"
    assert asked(reasoning={"effort": "low"}) == (200, "reasoning")
