"""F25 over HTTP: a model whose steps fail or hang is reported as broken, and the others answer."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.stand_in import Talker, until
from woolly.engine.watchdog import Watchdog
from woolly.errors import NotFoundError
from woolly.server.models.loaded import load_llm


def fails(talker: Talker) -> None:
    def run(size: Any) -> Any:
        raise RuntimeError("a worker died")

    talker.runner.run = run  # type: ignore[method-assign]


def ready(live: Live) -> tuple[int, str]:
    status, _, body = live.ask("GET", "/health/ready")
    return status, body["checks"]["inference_engine"]["message"]


def test_f25_a_model_whose_steps_fail_is_loaded_again_once(live: Live) -> None:
    assert live.chat()[0] == 200
    fails(live.loader.talkers[0])
    assert [live.chat()[0] for _ in range(2)] == [500, 500]
    assert until(lambda: ready(live)[0] == 503) and "a worker died" in ready(live)[1]
    assert live.chat()[0] == 200  # by a newly loaded model
    assert [talker.closed for talker in live.loader.talkers] == [True, False]
    assert ready(live)[0] == 200

    fails(live.loader.talkers[1])
    for _ in range(4):  # not loaded a second time
        status, _, body = live.chat()
        assert status == 500 and "a worker died" in body["error"]["message"]
    assert len(live.loader.talkers) == 2 and ready(live)[0] == 503

    assert live.ask("POST", "/api/v1/models/beta/load", {})[0] == 200  # a request to load it does load it again
    assert live.chat()[0] == 200 and len(live.loader.talkers) == 3


def test_f25_a_model_that_hangs_is_broken_and_another_answers(live: Live) -> None:
    assert live.chat()[0] == 200
    talker, let_go = live.loader.talkers[0], threading.Event()
    hung = talker.runner.run

    def run(size: Any) -> Any:
        let_go.wait(20)
        return hung(size)

    talker.runner.run = run  # type: ignore[method-assign]
    talker.engine.watchdog = Watchdog(talker.engine._give_up, least_s=0.3, first_s=0.3, look_s=0.01)
    talker.engine.watchdog.start()
    try:
        status, _, body = live.chat()
        assert status == 500 and "has not come back" in body["error"]["message"]
        assert live.chat()[0] == 500 and len(live.loader.talkers) == 1  # its hung step still holds threads
        assert ready(live)[0] == 503
        assert live.ask("GET", "/health/live")[0] == 200
        assert live.chat(model="Alpha.Q4")[0] == 200
    finally:
        let_go.set()


def test_f29_a_damaged_model_is_a_fault_of_the_server_on_every_route(start: Start, tmp_path: Path) -> None:
    live = start()
    data = (live.app.config.folders[0] / "beta.gguf").read_bytes()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cut.gguf").write_bytes(data[:-100])
    live.app.models.registry.config = dataclasses.replace(live.app.config, folders=(tmp_path / "mine",))
    live.app.models._loader._load_model = load_llm
    for method, path, body in (
        ("POST", "/v1/chat/completions", {"model": "cut", "messages": HELLO}),
        ("POST", "/v1/embeddings", {"model": "cut", "input": "x"}),
        ("POST", "/v1/messages", {"model": "cut", "messages": HELLO, "max_tokens": 1}),
        ("POST", "/api/generate", {"model": "cut", "prompt": "x", "stream": False}),
        ("POST", "/api/v1/models/cut/load", {}),
        ("GET", "/v1/models/cut", None),
    ):
        status, _, answer = live.ask(method, path, body)
        assert status == 500 and "the download may be incomplete" in str(answer), (path, answer)
    assert live.ask("GET", "/health")[0] == 200


def test_f29_a_server_is_not_ready_until_a_model_that_it_was_to_begin_with_is_loaded(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    live = start(preload=("later",))
    assert until(lambda: ready(live) == (503, "later cannot be loaded: there is no model 'later' here"))
    assert live.chat()[0] == 200  # others answer
    (tmp_path / "mine").mkdir()
    shutil.copy(folder / "beta.gguf", tmp_path / "mine" / "later.gguf")
    live.app.models.registry.config = dataclasses.replace(live.app.config, folders=(tmp_path / "mine",))
    assert live.chat(model="later")[0] == 200
    assert ready(live)[0] == 200


def test_f29_a_load_that_its_caller_tries_again_leaves_a_server_ready(live: Live) -> None:
    """As a gateway does with the header of a model whose replica leaves in that moment."""
    assert live.chat()[0] == 200
    loop = live.background._listener._loop
    assert loop is not None
    with pytest.raises(NotFoundError):
        asyncio.run_coroutine_threadsafe(live.app.models.load("gone"), loop).result(20)
    assert ready(live)[0] == 200
