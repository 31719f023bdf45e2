"""How the tokens of an answer are chosen where its request says nothing: one decision for every route."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import Live, Start

MESSAGES = {"messages": [{"role": "user", "content": "Say hello."}]}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": MESSAGES,
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Say hello."},
    "/v1/messages": MESSAGES | {"max_tokens": 4},
    "/api/chat": MESSAGES | {"stream": False},
    "/api/generate": {"prompt": "Hello", "stream": False},
    "/completion": {"prompt": "Hello"},
    "/api/v1/inference/chat": MESSAGES,
    "/api/v1/inference/complete": {"prompt": "Hello"},
    "/api/v1/optimized/chat/completions": MESSAGES,
}
OURS = {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "min_p": 0.0}
OPENAIS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


def sampled(live: Live, path: str, **fields: Any) -> dict[str, float]:
    """The sampling that the model was asked for, and that the answer tells in its header."""
    status, headers, _ = live.ask("POST", path, ROUTES[path] | fields)
    assert status == 200
    sampling = live.loader.talkers[-1].seen[-1].sampling
    values = {name: getattr(sampling, name) for name in OURS}
    assert headers["x-woolly-sampling"] == ", ".join(f"{name}={value:g}" for name, value in values.items())
    return values


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_that_says_nothing_gets_what_reads_well(live: Live, path: str) -> None:
    assert sampled(live, path) == OURS


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/completion"])
def test_a_field_that_is_sent_changes_that_field_alone(live: Live, path: str) -> None:
    assert sampled(live, path, temperature=0.2) == OURS | {"temperature": 0.2}


def test_what_a_file_recommends_comes_before_our_own_defaults(start: Start) -> None:
    live = start()
    live.chat()
    live.loader.talkers[-1].card.sampling.update({"temperature": 0.3, "min_p": 0.15})
    assert sampled(live, "/v1/messages") == OURS | {"temperature": 0.3, "min_p": 0.15}
    assert sampled(live, "/v1/messages", temperature=1.0) == OURS | {"temperature": 1.0, "min_p": 0.15}


@pytest.mark.parametrize("path", ROUTES)
def test_a_purist_gets_openais_defaults_on_every_route(start: Start, path: str) -> None:
    live = start(sampling="openai")
    live.chat()
    live.loader.talkers[-1].card.sampling.update({"temperature": 0.3, "min_p": 0.15})
    assert sampled(live, path) == OPENAIS
    if path != "/api/chat" and path != "/api/generate":
        assert sampled(live, path, top_p=0.5) == OPENAIS | {"top_p": 0.5}


@pytest.mark.parametrize("path", ROUTES)
def test_an_operators_defaults_come_before_those_of_the_model_and_after_the_request(start: Start, path: str) -> None:
    live = start(defaults={"temperature": 0.1, "top_k": 7})
    live.chat()
    live.loader.talkers[-1].card.sampling.update({"temperature": 0.3, "min_p": 0.15})
    assert sampled(live, path) == OURS | {"temperature": 0.1, "top_k": 7, "min_p": 0.15}
    if path != "/api/chat" and path != "/api/generate":
        assert sampled(live, path, temperature=0.9)["temperature"] == 0.9


def test_an_operators_defaults_count_where_the_rest_is_as_openai_has_it(start: Start) -> None:
    live = start(sampling="openai", defaults={"temperature": 0.1})
    assert sampled(live, "/v1/chat/completions") == OPENAIS | {"temperature": 0.1}
    assert live.ask("GET", "/props")[2]["default_generation_settings"]["params"]["temperature"] == 0.1


def test_an_operators_seed_is_that_of_requests_that_name_none(start: Start) -> None:
    live = start(defaults={"seed": 41})
    live.chat()
    seen = live.loader.talkers[-1].seen

    def seeds(path: str, **fields: Any) -> list[int]:
        seen.clear()
        assert live.ask("POST", path, ROUTES[path] | fields)[0] == 200
        return sorted(request.sampling.seed or 0 for request in seen)

    assert [seeds(path) for path in ROUTES] == [[41]] * len(ROUTES)
    assert seeds("/v1/chat/completions", seed=3) == [3]
    assert seeds("/v1/chat/completions", n=3) == [41, 42, 43]
    assert seeds("/v1/completions", n=2, prompt=["a", "b"]) == [41, 41, 42, 42]


LENGTHS: dict[str, tuple[str, ...]] = {  # where an answer tells how many tokens it has
    "/v1/chat/completions": ("usage", "completion_tokens"),
    "/v1/completions": ("usage", "completion_tokens"),
    "/v1/responses": ("usage", "output_tokens"),
    "/completion": ("tokens_predicted",),
    "/api/v1/inference/chat": ("usage", "completion_tokens"),
}


@pytest.mark.parametrize("path", LENGTHS)
def test_an_operators_length_is_that_of_answers_to_requests_that_name_none(start: Start, path: str) -> None:
    live = start(limits={"answer_tokens": 3})

    def tokens(**fields: Any) -> Any:
        status, _, answer = live.ask("POST", path, ROUTES[path] | fields)
        assert status == 200, answer
        for name in LENGTHS[path]:
            answer = answer[name]
        return answer

    assert tokens() == 3
    name = {"/v1/responses": "max_output_tokens", "/completion": "n_predict"}.get(path, "max_tokens")
    assert tokens(**{name: 5}) == 5


def test_an_operators_length_is_that_of_answers_to_ollamas_clients_too(start: Start) -> None:
    live = start(limits={"answer_tokens": 3})
    body = MESSAGES | {"model": "beta", "stream": False}
    assert live.ask("POST", "/api/chat", body)[2]["eval_count"] == 3
    assert live.ask("POST", "/api/chat", body | {"options": {"num_predict": 5}})[2]["eval_count"] == 5


def test_an_answer_is_no_longer_than_the_limit_whatever_else_is_said(start: Start) -> None:
    live = start(limits={"answer_tokens": 9, "max_tokens": 4})
    for fields in ({}, {"max_tokens": None}, {"max_tokens": 7}):
        status, _, answer = live.ask("POST", "/v1/chat/completions", MESSAGES | fields)
        assert (status, answer["usage"]["completion_tokens"]) == (200, 4)
