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
