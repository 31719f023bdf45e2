"""Routes: a row is all that a route needs, and one path may have several of them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.server.conftest import HELLO, Live, Start, real_server
from woolly.config.serving import Serving
from woolly.errors import NativeError, WoollyError
from woolly.llm.encoder import PURPOSES
from woolly.request import Completion, Text
from woolly.server.app import App
from woolly.server.dialect_table import DIALECTS
from woolly.server.dialects.openai import dialect as openai
from woolly.server.dialects.openai.chat import CHAT
from woolly.server.dialects.openai.chat_shapes import OpenAIChatBody
from woolly.server.dialects.woolly.docs import page
from woolly.server.dialects.woolly.openapi import describe
from woolly.server.http.errors import ROUTES
from woolly.server.http.framing import LINES
from woolly.server.routes import Body, Dialect, Events, Generation, Head, Job

CHATS = ("/v1/chat/completions", "/api/v1/inference/chat", "/api/chat")


class Line(msgspec.Struct):
    text: str


class Fault(msgspec.Struct):
    text: str


def read(body: Body, path: Mapping[str, str], limits: Serving) -> Job:
    """Lines of text."""
    return CHAT.read({name: value for name, value in body.items() if name != "lines"}, path, limits)


def render(_job: Job, _head: Head, answers: list[Completion]) -> Line:
    return Line(answers[0].text)


async def frames(_job: Job, _head: Head, events: Events) -> AsyncGenerator[Line, None]:
    async for _, event in events:
        if isinstance(event, Text):
            yield Line(event.text)


ROUTE = Generation(
    CHAT.path,
    read,
    render,
    frames,
    OpenAIChatBody,
    "OpenAI",
    prefix="l-",
    framing=LINES,
    accepts=lambda body: "lines" in body,
)


def error(problem: WoollyError, _id: str) -> Fault:
    return Fault(problem.message)


DIALECT = Dialect("lines", (ROUTE,), error, ("/lines",))


def serving(live: Live, *dialects: Dialect) -> Live:
    """The server of `live`, with other dialects before its own."""
    other = App(live.app.settings, live.app.config, load=live.loader.load, dialects=(*dialects, *DIALECTS))
    live.app.dispatch.router = other.dispatch.router
    return live


def ask(live: Live, **fields: Any) -> tuple[int, dict[str, str], Any]:
    return live.ask("POST", CHAT.path, {"messages": HELLO, "max_tokens": 4} | fields)


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", "/v1/chat/completion", "did you mean /v1/chat/completions?"),
        ("POST", "/chat/completion", "did you mean /chat/completions?"),
        ("POST", "/V1/embedding", "did you mean /v1/embeddings?"),
        ("POST", "/v1/message", "did you mean /v1/messages?"),
        ("POST", "/api/chats", "did you mean /api/chat?"),
        ("GET", "/v1/model", "did you mean /v1/models?"),
        ("POST", "/apply-templates", "did you mean /apply-template?"),
        ("GET", "/wp-admin.php", "GET /docs describes every route"),
        ("GET", "//v1/models" + "/" * 4000, "GET /docs describes every route"),
    ],
)
def test_a_wrong_path_is_told_the_nearest_that_there_is(live: Live, method: str, path: str, meant: str) -> None:
    status, _, answer = live.ask(method, path, {} if method == "POST" else None)
    assert (status, meant in str(answer)) == (404, True), answer


def test_no_wrong_path_is_told_a_file_of_the_page_or_a_pattern(live: Live) -> None:
    wrong = [route.path + "x" for dialect in DIALECTS for route in dialect.routes if "{" not in route.path]
    answers = [str(live.ask("GET", path)[2]) for path in wrong]
    described = {route.path for dialect in DIALECTS for route in dialect.routes if route.tag}
    for answer in answers:
        near = re.search(r"did you mean (\S+)\?", answer)
        assert near is None or (near[1] in described and "{" not in near[1]), answer


def test_a_model_without_a_template_is_told_by_its_route(tmp_path_factory: pytest.TempPathFactory) -> None:
    meta = {"tokenizer.chat_template": None}
    with real_server(tmp_path_factory, "plain", context=64, limits={}, meta=meta) as live:
        status, _, answer = live.chat()
    assert status == 400
    assert "has no chat template; use POST /v1/completions" in answer["error"]["message"]


def test_every_call_of_the_library_that_an_error_names_has_a_route() -> None:
    named = {call for _, calls in PURPOSES.values() for call in calls}
    served = {f"{route.method} {route.path}" for dialect in DIALECTS for route in dialect.routes}
    assert ROUTES.keys() == named and set(ROUTES.values()) <= served


def test_the_first_route_that_accepts_a_body_answers_it(live: Live) -> None:
    serving(live, DIALECT)
    assert ask(live, lines=True)[2].keys() == {"text"}
    assert ask(live)[2]["object"] == "chat.completion"
    assert ask(live, lines=True, n=0)[2].keys() == {"text"}  # an error has the shape of the route's own dialect
    assert ask(live, n=0)[2].keys() == {"error"}


def test_a_stream_is_framed_as_the_route_says(live: Live) -> None:
    serving(live, DIALECT)
    status, headers, body = ask(live, lines=True, stream=True)
    assert (status, headers["content-type"]) == (200, "application/x-ndjson")
    assert len([json.loads(line)["text"] for line in body.splitlines()]) == 4


def test_a_stream_is_described_as_it_is_framed() -> None:
    """Also the stream of a route that only streams, whose body has no `stream`, and with a tag of its own."""
    route = replace(ROUTE, render=None, without=frozenset(["stream"]), tag="Lines")
    document = describe(((DIALECT, route),))
    responses = document["paths"][CHAT.path]["post"]["responses"]
    line = {"anyOf": [{"$ref": "#/components/schemas/Line"}, {"$ref": "#/components/schemas/Fault"}]}
    assert responses["200"]["content"] == {"application/x-ndjson": {"schema": line}}
    assert document["tags"][-1] == {"name": "Lines"} and b"<h2>Lines</h2>" in page(document)


def test_an_error_in_the_middle_of_a_stream_is_framed_by_the_route(live: Live) -> None:
    async def failing(job: Job, head: Head, events: Events) -> AsyncGenerator[Line, None]:
        yield Line("begun")
        raise NativeError("the middle of an answer")

    serving(live, replace(DIALECT, routes=(replace(ROUTE, frames=failing),)))
    body = ask(live, lines=True, stream=True)[2]
    assert [json.loads(line)["text"] for line in body.splitlines()] == ["begun", "the middle of an answer"]


def test_of_several_routes_the_last_alone_takes_any_body(live: Live) -> None:
    two = (replace(openai.DIALECT, routes=(CHAT,)), replace(DIALECT, routes=(ROUTE,)))
    with pytest.raises(AssertionError, match="the last route alone takes any body"):
        App(live.app.settings, live.app.config, load=live.loader.load, dialects=two)


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
    assert live.loader.talkers[0].seen[-1].chat_template_kwargs["reasoning_effort"] == "high"
    assert asked(reasoning={"effort": "low"}) == (200, "reasoning")
