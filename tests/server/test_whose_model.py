"""Whose model answers: the one that was meant, whatever others asked for, and only one that can do what is asked."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end.test_embed import bert_model
from tests.server.background import Background
from tests.server.conftest import HELLO, Live, Start
from tests.server.stand_in import TalkerLoader, until
from tests.tiny import tiny
from woolly.config import read_config
from woolly.config.rows import ModelConfig
from woolly.server import App, Settings

Serve = Callable[..., Live]
STRICT = {"X-Woolly-Strict": "1"}
NOBODY = "gpt-4o-mini"  # a name that clients send to every server


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that do different things; by their names the one that makes embeddings comes first."""
    folder = tmp_path_factory.mktemp("models")
    bert_model("bert", folder / "a-encoder.gguf")
    bert_model("bert_rank", folder / "ranker.gguf")
    tiny(folder / "talker.gguf")
    return folder


@pytest.fixture
def serve(models: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers with these models; `start` names those that they are started with."""
    with contextlib.ExitStack() as stack:

        def begin(*start: str, **settings: Any) -> Live:
            config = read_config({"HOME": str(tmp_path), "WOOLLY_MODELS_DIR": str(models)}, threads=1)
            config = dataclasses.replace(config, folders=(models,), hub=tmp_path / "hub")
            paths = tuple(models / f"{name}.gguf" for name in start)
            app = App(Settings(ports=(0,), log_level="error", models=paths, **settings), config)
            return Live(app, TalkerLoader(), stack.enter_context(Background(app)))

        yield begin


def chat(live: Live, **fields: Any) -> tuple[int, Any]:
    status, _, body = live.ask("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 1} | fields)
    return status, body


def embed(live: Live, **fields: Any) -> tuple[int, Any]:
    status, _, body = live.ask("POST", "/v1/embeddings", {"input": "hello"} | fields)
    return status, body


def rank(live: Live, **fields: Any) -> tuple[int, Any]:
    status, _, body = live.ask("POST", "/v1/rerank", {"query": "hello", "documents": ["world"]} | fields)
    return status, body


def test_h54_the_model_of_the_start_stays_the_default_whatever_others_ask_for(serve: Serve) -> None:
    live = serve("talker")
    assert embed(live, model="a-encoder")[1]["model"] == "a-encoder"
    assert live.ask("POST", "/api/v1/models/a-encoder/load", {})[0] == 200
    for model in ({}, {"model": "default"}, {"model": "loaded"}):
        assert chat(live, **model)[1]["model"] == "talker"
    assert live.ask("GET", "/api/v1/models/default")[2]["id"] == "talker"
    assert live.ask("GET", "/health")[2]["model"] == "talker"


def test_h54_of_several_models_of_the_start_the_one_that_was_made_for_it_answers(serve: Serve) -> None:
    live = serve("talker", "a-encoder", "ranker")
    assert chat(live)[1]["model"] == "talker"
    assert embed(live)[1]["model"] == "a-encoder"
    assert rank(live)[1]["model"] == "ranker"
    assert embed(serve("talker"))[1]["model"] == "talker"  # it can do that, too


def test_h54_without_a_model_of_the_start_one_that_can_do_what_is_asked_answers(serve: Serve) -> None:
    live = serve()
    assert chat(live)[1]["model"] == "talker"
    assert embed(live)[1]["model"] == "a-encoder"
    assert rank(live)[1]["model"] == "ranker"
    assert chat(live)[1]["model"] == "talker"


def test_h54_what_no_model_of_the_start_can_do_is_refused_and_one_that_can_is_named(serve: Serve) -> None:
    live = serve("a-encoder")
    status, body = chat(live)
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "model_error", "model")
    assert body["error"]["message"] == (
        "no model that this server was started with continues texts; name one that does, as talker"
    )
    assert "ranks documents; name one that does, as ranker" in rank(live)[1]["error"]["message"]
    assert chat(live, model="talker")[0] == 200


def test_h54_a_default_model_that_is_not_here_is_told_so(serve: Serve) -> None:
    status, body = chat(serve(default_model="typo"))
    assert (status, body["error"]["message"]) == (
        400,
        "the model that answers where none is named is not here; name one of GET /v1/models",
    )


def test_h54_a_model_that_is_loaded_by_hand_is_the_default_where_none_was_named(serve: Serve, models: Path) -> None:
    shutil.copy(models / "talker.gguf", models / "z-other.gguf")
    try:
        live = serve()
        assert chat(live, model="z-other")[0] == 200
        assert chat(live)[1]["model"] == "talker"  # using one is not choosing it
        assert live.ask("POST", "/api/v1/models/z-other/load", {})[0] == 200
        assert chat(live)[1]["model"] == "z-other"
        assert live.ask("POST", "/api/v1/models/z-other/unload", {})[0] == 200
        assert chat(live)[1]["model"] == "z-other"
    finally:
        (models / "z-other.gguf").unlink()


@pytest.mark.parametrize(
    ("start", "settings"),
    [
        (("talker",), {}),
        ((), {"default_model": "talker"}),
        ((), {"preload": ("talker",)}),
        ((), {"aliases": {"*": "talker"}}),
        (("talker", "ranker"), {"aliases": {"*": "talker"}}),
    ],
)
def test_h54_an_unknown_name_is_answered_by_the_one_model_that_was_meant_and_noted(
    serve: Serve, start: tuple[str, ...], settings: dict[str, Any]
) -> None:
    live = serve(*start, **settings)
    for path, body in (
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 1}),
        ("/api/chat", {"messages": HELLO, "stream": False, "options": {"num_predict": 1}}),
        ("/completion", {"prompt": "x", "n_predict": 1}),
        ("/v1/embeddings", {"input": "hello"}),
        ("/api/embed", {"input": "hello"}),
    ):
        for name in (NOBODY, NOBODY, "/models/x.gguf", "../../etc/passwd"):
            status, headers, answer = live.ask("POST", path, body | {"model": name})
            assert (status, headers.get("x-woolly-notes")) == (200, "model"), (path, name, answer)
            assert path == "/api/embed" or answer["model"] == "talker"
        assert "x-woolly-notes" not in live.ask("POST", path, body | {"model": "talker"})[1]
    status, _, counted = live.ask("POST", "/v1/messages/count_tokens", {"messages": HELLO, "model": NOBODY})
    assert status == 200 and counted["input_tokens"] > 0


def test_h54_an_unknown_name_loads_shows_unloads_and_deletes_nothing(serve: Serve) -> None:
    live = serve("talker", manage_models=True)
    assert chat(live, model=NOBODY)[0] == 200
    for method, path, body in (
        ("POST", f"/api/v1/models/{NOBODY}/load", {}),
        ("POST", f"/api/v1/models/{NOBODY}/unload", {}),
        ("GET", f"/v1/models/{NOBODY}", None),
        ("POST", "/api/show", {"model": NOBODY}),
        ("DELETE", "/api/delete", {"model": NOBODY}),
        ("POST", "/api/generate", {"model": NOBODY}),  # a request without a prompt loads a model
        ("POST", "/api/generate", {"model": NOBODY, "keep_alive": 0}),
    ):
        assert live.ask(method, path, body)[0] == 404, path


def test_h54_an_unknown_name_is_refused_by_several_models_in_strict_mode_and_where_nothing_was_named(
    serve: Serve,
) -> None:
    for live in (serve("talker", "ranker"), serve(), serve("talker", strict=True)):
        assert chat(live, model=NOBODY)[0] == 404
        assert embed(live, model=NOBODY)[0] == 404
    lenient = serve("talker")
    assert chat(lenient, model=NOBODY)[0] == 200
    strictly = {"messages": HELLO, "max_tokens": 1, "model": NOBODY}
    assert lenient.ask("POST", "/v1/chat/completions", strictly, STRICT)[0] == 404


def test_a_model_that_comes_later_answers_under_its_own_name(start: Start, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    shutil.copy(folder / "beta.gguf", tmp_path / "mine" / "beta.gguf")
    live = start(configs=(), default_model="beta")
    live.app.models.registry.config = dataclasses.replace(live.app.config, folders=(tmp_path / "mine",))
    assert live.chat(model="later")[2]["model"] == "beta"
    shutil.copy(folder / "beta.gguf", tmp_path / "mine" / "later.gguf")
    assert live.ask("POST", "/api/v1/models/later/load", {})[0] == 200
    assert live.chat(model="LATER.gguf")[2]["model"] == "LATER.gguf"
    assert live.chat(model="later")[2]["model"] == "later"


@pytest.mark.parametrize("name", ["mine", "MINE", "mine:latest", "beta", "beta:latest", "Beta.gguf", "gpt-4o"])
def test_h55_every_name_of_a_model_means_it_on_every_route(start: Start, folder: Path, name: str) -> None:
    live = start(configs=(ModelConfig("mine", folder / "beta.gguf"),), aliases={"gpt-4o": "mine"})
    model = f"/api/v1/models/{name}"
    assert live.chat(model=name)[2]["model"] == name
    assert live.ask("GET", model)[2]["id"] == "mine"
    assert live.ask("POST", f"{model}/load", {})[2]["model_info"]["id"] == "mine"
    assert live.ask("POST", f"{model}/unload", {})[0] == 200
    ask = {"model": name, "prompt": "Hi", "stream": False, "options": {"num_predict": 1}}
    assert live.ask("POST", "/api/generate", ask | {"keep_alive": 0})[0] == 200
    assert until(lambda: live.app.models.loaded == [])
    assert live.ask("POST", "/api/generate", ask)[0] == 200
    assert live.ask("POST", "/api/generate", {"model": name, "keep_alive": 0})[2]["done_reason"] == "unload"
    assert live.app.models.loaded == []
    assert live.ask("POST", "/api/show", {"model": name})[0] == 200
