"""OpenAI's own Python client against `woolly serve` with a real model: what its users call, sync and async."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import Process, environ
from tests.server.stand_in import until

openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")

HELLO: Any = [{"role": "user", "content": "Hello"}]
MODEL = "talker"
UNIQUE = {"type": "json_schema", "json_schema": {"name": "set", "schema": {"type": "array", "uniqueItems": True}}}
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture
def client(served: Process) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def chat(client: Any, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 8} | fields)


def complete(client: Any, **fields: Any) -> Any:
    return client.completions.create(**{"model": MODEL, "prompt": "Once upon", "max_tokens": 8} | fields)


def spoken(chunks: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def active(served: Process) -> int:
    number: int = served.ask("GET", "/api/v1/performance/stats")[2]["requests"]["active"]
    return number


def test_models_are_listed_and_found(client: Any) -> None:
    (row,) = client.models.list().data
    assert (row.id, row.object, row.owned_by) == (MODEL, "model", "woolly")
    assert client.models.retrieve(MODEL) == row


def test_a_chat_is_answered_whole_and_streamed_alike(client: Any) -> None:
    unstreamed = chat(client, temperature=0)
    assert (unstreamed.object, unstreamed.model, unstreamed.choices[0].finish_reason) == (
        "chat.completion",
        MODEL,
        "length",
    )
    assert unstreamed.usage.total_tokens == unstreamed.usage.prompt_tokens + 8
    with chat(client, temperature=0, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    assert spoken(chunks) == unstreamed.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == unstreamed.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_a_chat_is_answered_by_the_async_client_several_at_once(served: Process, client: Any) -> None:
    alone = [chat(client, seed=seed).choices[0].message.content for seed in range(6)]

    async def together() -> list[str]:
        async with openai.AsyncOpenAI(base_url=str(client.base_url), api_key="none", max_retries=0) as other:

            async def one(seed: int) -> str:
                if seed % 2:
                    return str((await chat(other, seed=seed)).choices[0].message.content)
                chunks = [chunk async for chunk in await chat(other, seed=seed, stream=True)]
                return spoken(chunks)

            return await asyncio.gather(*(one(seed) for seed in range(6)))

    assert asyncio.run(together()) == alone


def test_a_completion_is_answered_whole_streamed_and_for_several_prompts(client: Any) -> None:
    unstreamed = complete(client, temperature=0)
    assert (unstreamed.object, len(unstreamed.choices)) == ("text_completion", 1)
    pieces = complete(client, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == unstreamed.choices[0].text
    both = complete(client, temperature=0, prompt=["Once upon", "There was"])
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == unstreamed.choices[0].text


def test_likelihoods_of_a_chat_have_the_clients_types(client: Any) -> None:
    rows = chat(client, temperature=0, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert len(rows) == 8
    for row in rows:
        assert row.logprob == row.top_logprobs[0].logprob
        assert len(row.top_logprobs) == 3
        assert bytes(row.bytes).decode("utf-8", "replace") == row.token


def test_an_echo_tells_how_likely_the_prompt_was(client: Any) -> None:
    (plain,) = complete(client, temperature=0, logprobs=2).choices
    (choice,) = complete(client, temperature=0, logprobs=2, echo=True).choices
    likely = choice.logprobs
    count = len(likely.tokens) - 8
    assert choice.text == "Once upon" + plain.text
    assert "".join(likely.tokens[:count]) == "Once upon"
    assert likely.token_logprobs[0] is None
    assert all(value <= 0 for value in likely.token_logprobs[1:])
    assert likely.token_logprobs[count:] == plain.logprobs.token_logprobs
    assert likely.text_offset[:count] == [sum(map(len, likely.tokens[:index])) for index in range(count)]
    quiet = complete(client, temperature=0, echo=True).choices[0]
    assert (quiet.text, quiet.logprobs) == (choice.text, None)


def test_a_token_of_the_prompt_is_as_likely_as_it_was_as_an_answer(served: Process, client: Any) -> None:
    fields = {"prompt": "Once upon", "max_length": 3, "temperature": 0}
    ids = served.ask("POST", "/api/tokenize", {"text": "Once upon"})[2]["tokens"]
    answer = served.ask("POST", f"/api/v1/models/{MODEL}/generate", fields)[2]["tokens"]
    values = complete(client, temperature=0, max_tokens=3, logprobs=0).choices[0].logprobs.token_logprobs
    echoed = complete(client, prompt=ids + answer, max_tokens=1, echo=True, logprobs=0).choices[0].logprobs
    assert echoed.token_logprobs[len(ids) : len(ids) + 3] == values


def test_a_stop_text_ends_the_answer_before_it(client: Any) -> None:
    uncut = complete(client, temperature=0).choices[0].text
    cut = uncut[5:8]
    choice = complete(client, temperature=0, stop=cut).choices[0]
    assert choice.text == uncut[: uncut.index(cut)]
    assert choice.finish_reason == "stop"


def test_several_choices_are_those_of_the_following_seeds(client: Any) -> None:
    answers = chat(client, n=3, seed=10).choices
    alone = [chat(client, seed=10 + index).choices[0].message.content for index in range(3)]
    assert [choice.message.content for choice in answers] == alone
    assert len(set(alone)) == 3


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"model": "nobody"}, "NotFoundError", "model"),
        ({"messages": []}, "BadRequestError", "messages"),
        ({"temperature": -1}, "BadRequestError", "temperature"),
        ({"messages": [{"role": "user", "content": "a b " * 10_000}]}, "BadRequestError", None),
        ({"tools": [{"type": "function", "function": {"name": "f f"}}]}, "BadRequestError", "tools[0].function.name"),
        ({"response_format": UNIQUE}, "BadRequestError", "response_format"),
    ],
)
def test_an_error_is_the_clients_own_kind(client: Any, fields: Any, kind: str, param: str | None) -> None:
    for stream in (False, True):
        with pytest.raises(getattr(openai, kind)) as caught:
            chat(client, stream=stream, **fields)
        assert caught.value.param == param
        assert caught.value.body["message"]
    assert chat(client).choices


@pytest.mark.parametrize("strict", [True, False])
def test_an_answer_has_the_format_that_was_asked_for_whole_and_streamed(client: Any, strict: bool) -> None:
    schema = {"name": "person", "schema": PERSON, "strict": strict}
    fields = {"max_tokens": 80, "seed": 4, "response_format": {"type": "json_schema", "json_schema": schema}}
    answers = [choice.message.content for choice in chat(client, n=3, **fields).choices]
    for text in answers:
        assert json.loads(text).keys() == {"name", "age"}
    assert spoken(chat(client, stream=True, **fields)) == answers[0]
    likely = chat(client, logprobs=True, top_logprobs=2, **fields).choices[0]
    assert likely.message.content == answers[0] == "".join(row.token for row in likely.logprobs.content)


def test_other_formats_are_kept_to_in_both_routes(client: Any) -> None:
    assert chat(client, response_format={"type": "json_object"}).choices[0].message.content[0] == "{"
    more = {"extra_body": {"response_format": {"type": "choice", "value": ["wool", "hair"]}}}
    assert {choice.text for choice in complete(client, n=4, **more).choices} <= {"wool", "hair"}
    more = {"extra_body": {"response_format": {"type": "gbnf", "value": 'root ::= "b" [a]{3} "h"'}}}
    assert complete(client, **more).choices[0].text == "baaah"


def test_a_stream_that_is_closed_ends_the_work(served: Process, client: Any) -> None:
    stream = chat(client, stream=True, max_tokens=4000)
    next(iter(stream))
    stream.close()
    assert until(lambda: active(served) == 0)

    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=str(client.base_url), api_key="none", max_retries=0) as other:
            task = asyncio.create_task(chat(other, max_tokens=4000))
            await asyncio.sleep(0.2)
            task.cancel()

    asyncio.run(leave())
    assert until(lambda: active(served) == 0)
    assert chat(client).choices


def test_a_wrong_key_is_the_clients_own_error(talkers: Path, tmp_path: Path) -> None:
    key = "a-key-of-twenty-characters"
    with Process(environ(tmp_path, talkers) | {"WOOLLY_API_KEY": key}) as locked:
        base = f"http://127.0.0.1:{locked.port}/v1"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=base, api_key="wrong", max_retries=0).models.list()
        assert openai.OpenAI(base_url=base, api_key=key, max_retries=0).models.list().data
