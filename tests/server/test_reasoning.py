"""Thoughts over HTTP: in fields of their own, whole and streamed, and absent where there are none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start, real_server
from tests.tiny import scripted

ROUTES = ("/v1/chat/completions", "/api/v1/inference/chat")
MODELS = {
    "whole": ("<think>", "I ", "add.", "</think>", "\n\n", "It is", " 4."),
    "cut": ("<thi", "nk>\nI ad", "d.\n</th", "ink>\nIt i", "s 4."),
    "open": ("<think>", "I add", " and add"),
    "plain": ("It is", " 4."),
}
SAID = dict.fromkeys(("whole", "cut"), ("I add.", "It is 4.")) | {
    "open": ("I add and add", ""),
    "plain": (None, "It is 4."),
}


@pytest.fixture(scope="module")
def thinkers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with real_server(tmp_path_factory, "spare", context=128, limits={}) as live:
        for name, script in MODELS.items():
            scripted(live.app.config.folders[0] / f"{name}.gguf", *script)
        yield live


def asked(live: Live, route: str, **fields: Any) -> Any:
    status, _, body = live.ask("POST", route, {"messages": HELLO, "temperature": 0} | fields)
    assert status == 200, body
    return body


def chunks(body: bytes | str) -> list[dict[str, Any]]:
    lines = (body if isinstance(body, str) else body.decode()).splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("model", MODELS)
def test_a_whole_answer_has_its_thoughts_beside_its_content(thinkers: Live, route: str, model: str) -> None:
    message = asked(thinkers, route, model=model)["choices"][0]["message"]
    assert (message.get("reasoning_content"), message["content"]) == SAID[model]
    assert message.get("reasoning") == message.get("reasoning_content")
    assert "reasoning" in message or model == "plain"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("model", MODELS)
def test_a_streamed_answer_tells_the_same_in_its_deltas(thinkers: Live, route: str, model: str) -> None:
    pieces = chunks(asked(thinkers, route, model=model, stream=True))
    deltas = [choice["delta"] for chunk in pieces for choice in chunk["choices"]]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert ("".join(thoughts) or None, "".join(delta.get("content", "") for delta in deltas)) == SAID[model]
    assert [delta["reasoning"] for delta in deltas if "reasoning" in delta] == thoughts
    kinds = ["reasoning" in delta for delta in deltas[1:-1]]
    assert kinds == sorted(kinds, reverse=True)  # thoughts come first


@pytest.mark.parametrize("model", ["whole", "open", "plain"])
def test_likelihoods_are_those_of_the_content(thinkers: Live, model: str) -> None:
    body = asked(thinkers, ROUTES[0], model=model, logprobs=True)
    tokens = [row["token"] for row in body["choices"][0]["logprobs"]["content"]]
    assert "".join(tokens) == SAID[model][1]
    pieces = chunks(asked(thinkers, ROUTES[0], model=model, logprobs=True, stream=True))
    rows = [row for chunk in pieces for c in chunk["choices"] if c["logprobs"] for row in c["logprobs"]["content"]]
    assert [row["token"] for row in rows] == tokens


def test_an_output_text_of_responses_has_the_likelihoods_of_its_text(thinkers: Live) -> None:
    wanted = {"model": "whole", "input": "2 + 2?", "temperature": 0, "include": ["message.output_text.logprobs"]}
    status, _, answer = thinkers.ask("POST", "/v1/responses", wanted)
    (part,) = answer["output"][-1]["content"]
    assert (status, part["text"]) == (200, "It is 4.")
    assert [row["token"] for row in part["logprobs"]] == ["It is", " 4."]
    _, _, streamed = thinkers.ask("POST", "/v1/responses", wanted | {"stream": True})
    assert chunks(streamed)[-1]["response"]["output"][-1]["content"] == [part]


def test_ollama_tells_how_likely_every_token_was(thinkers: Live) -> None:
    wanted = {"model": "whole", "messages": HELLO, "logprobs": True, "options": {"temperature": 0}}
    for stream in (False, True):
        _, _, answer = thinkers.ask("POST", "/api/chat", wanted | {"stream": stream})
        lines = [json.loads(line) for line in answer.splitlines()] if stream else [answer]
        tokens = [row["token"] for line in lines for row in line.get("logprobs", ())]
        assert tokens == [*MODELS["whole"], ""]  # and the end


def test_a_completion_keeps_the_marks_in_its_text(thinkers: Live) -> None:
    prompt = "<|im_start|>assistant\n"
    body = {"model": "whole", "prompt": prompt, "temperature": 0}
    status, _, answer = thinkers.ask("POST", "/v1/completions", body)
    assert (status, answer["choices"][0]["text"]) == (200, "".join(MODELS["whole"]))


def test_the_choices_of_a_prompt_are_prepared_once(start: Start) -> None:
    live = start()
    status, _, body = live.chat(n=4, seed=7)
    assert (status, len(body["choices"])) == (200, 4)
    (talker,) = live.loader.talkers
    assert talker.prepared == 1
    assert sorted(request.sampling.seed or 0 for request in talker.seen) == [7, 8, 9, 10]
    prompts = {"prompt": ["a", "b"], "n": 2, "max_tokens": 3}
    assert live.ask("POST", "/v1/completions", prompts)[0] == 200
    assert talker.prepared == 3
