"""Models over HTTP: lists, records, loading once, unloading really, swapping while others answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.server.background import Background
from tests.server.conftest import HELLO, Live, Start
from tests.server.raw import Raw, ask
from tests.server.stand_in import until
from tests.tiny import tiny
from woolly.config import read_config
from woolly.config.rows import ModelConfig
from woolly.server import App, Settings
from woolly.server.models.loaded import load_llm
from woolly.server.models.registry import Registry
from woolly.store import Model

OLE = {"X-Ole-Client": "1"}


def test_health_answers_before_any_model_is_loaded(live: Live) -> None:
    for path in ("/health", "/api/v1/health"):
        status, _, body = live.ask("GET", path)
        assert (status, body["status"], body["service"], body["model"]) == (200, "ok", "woolly-server", None)
    assert live.ask("GET", "/health/live")[2]["status"] == "alive"
    status, _, body = live.ask("GET", "/api/v1/health/ready")
    assert (status, body["status"], body["checks"]["inference_engine"]["status"]) == (200, "ready", "ok")
    assert live.loader.talkers == []


def test_the_list_has_three_shapes_of_one_record(live: Live) -> None:
    bare = live.ask("GET", "/api/v1/models")[2]
    assert [row["id"] for row in bare] == ["beta", "Alpha.Q4"]  # the default first
    assert live.ask("GET", "/api/models")[2] == bare
    wrapped = {"success": True, "object": "list", "data": bare}
    assert live.ask("GET", "/api/v1/models", headers=OLE)[2] == wrapped
    assert live.ask("GET", "/api/v1/models", headers={"User-Agent": "Ole/1.0"})[2] == wrapped
    short = [{name: row[name] for name in ("id", "object", "created", "owned_by")} for row in bare]
    assert live.ask("GET", "/v1/models")[2] == live.ask("GET", "/models")[2] == {"object": "list", "data": short}
    assert live.ask("GET", "/models", headers=OLE)[2] == bare  # Ole alone knows this path with another shape
    assert live.ask("GET", "/v1/models/beta")[2] == short[0]


def test_a_record_tells_what_the_file_says(live: Live) -> None:
    row = live.ask("GET", "/api/v1/models/beta")[2]
    assert row["name"] == row["id"] == "beta"
    assert row["path"] == "beta.gguf"
    assert row["size"] == row["size_bytes"] > 1000
    assert (row["architecture"], row["quantization"], row["context_length"]) == ("llama", "Q4_0", 2048)
    assert row["capabilities"] == ["completion", "chat", "tools"]
    assert row["features"] == {"chat": True, "mcp": True, "vision": False, "function_calling": True}
    assert row["metadata"]["num_layers"] == 2
    assert row["metadata"]["vocab_size"] == 288
    assert live.ask("GET", "/api/v1/models/BETA.gguf")[2] == row
    assert live.ask("GET", "/v1/models/nobody")[0] == 404


def test_a_model_of_ollama_is_served_by_its_name(live: Live, folder: Path, tmp_path: Path) -> None:
    data = (folder / "beta.gguf").read_bytes() + bytes(64)
    digest = hashlib.sha256(data).hexdigest()
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(data)}
    for path, content in (
        ("manifests/registry.ollama.ai/ann/small/latest", json.dumps({"layers": [layer]}).encode()),
        (f"blobs/sha256-{digest}", data),
    ):
        (tmp_path / "ollama" / path).parent.mkdir(parents=True)
        (tmp_path / "ollama" / path).write_bytes(content)
    assert [row["id"] for row in live.ask("GET", "/api/v1/models")[2]][-1] == "ann/small:latest"
    status, _, body = live.chat(model="ann/small:latest")
    assert (status, body["model"]) == (200, "ann/small:latest")


def test_load_and_unload_really_load_and_free(live: Live) -> None:
    status, _, body = live.ask("POST", "/api/v1/models/beta/load", {})
    assert (status, body["success"], body["model_info"]["loaded"]) == (200, True, True)
    assert live.ask("GET", "/health")[2]["model"] == "beta"
    assert live.ask("GET", "/api/v1/models/loaded")[2]["id"] == "beta"
    status, _, body = live.ask("POST", "/api/v1/models/beta/unload")
    assert (status, body["success"]) == (200, True)
    assert live.loader.talkers[0].closed
    assert live.ask("POST", "/api/v1/models/beta/unload", {})[0] == 404
    assert live.ask("POST", "/api/models/unload", {})[2] == {"success": True, "message": "no model is loaded"}
    for name in ("Alpha.Q4", "beta"):
        assert live.ask("POST", "/models/load", {"model": name})[2]["success"]
    assert live.ask("POST", "/models/unload", {"model": "Alpha.Q4"})[2]["message"] == "Alpha.Q4 is unloaded"
    assert live.ask("GET", "/api/v1/models/loaded")[2]["id"] == "beta"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/models/load", {"name": "beta"}),
        ("/v1/models/load", {"model": "beta"}),
        ("/api/models/load", {"model_path": "./models/beta.gguf", "gpu_layers": 5}),
        ("/api/v1/models/beta/load", {"path": "beta.gguf"}),
        ("/api/v1/models/beta/load", None),
    ],
)
def test_a_load_is_asked_for_in_many_ways(live: Live, path: str, body: object) -> None:
    status, _, answer = live.ask("POST", path, body)
    assert (status, answer["model_info"]["id"]) == (200, "beta")


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"path": "/etc/passwd"}, 403), ({"path": "../../secret.gguf"}, 403), ({"path": "nobody.gguf"}, 404), ({}, 404)],
)
def test_a_failed_load_keeps_its_shape_and_has_its_true_status(live: Live, body: object, expected: int) -> None:
    status, _, answer = live.ask("POST", "/api/v1/models/nobody/load", body)
    assert (status, answer["success"], answer["model_info"], answer["error"]["code"]) == (
        expected,
        False,
        None,
        expected,
    )
    assert live.loader.talkers == []


def test_s07_a_link_that_leads_out_of_the_folder_is_no_model(start: Start, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    live = start()
    folder = live.app.config.folders[0]
    shutil.copy(folder / "beta.gguf", outside / "secret.gguf")
    link = folder / "secret.gguf"
    os.symlink(outside / "secret.gguf", link)
    try:
        assert live.chat(model="secret")[0] == 404
        assert live.ask("POST", "/api/v1/models/secret/load", {"path": str(link)})[0] == 403
    finally:
        link.unlink()


def test_h42_fifty_loads_at_once_load_once(start: Start) -> None:
    live = start(load_s=0.3)
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(live.ask("POST", "/api/v1/models/beta/load", {})[0]))
        for _ in range(50)
    ]
    for thread in threads:
        thread.start()
    assert live.ask("GET", "/health")[0] == 200
    for thread in threads:
        thread.join()
    assert codes == [200] * 50
    assert len(live.loader.talkers) == 1


def test_h42_loads_and_unloads_at_once_never_get_stuck(start: Start) -> None:
    live = start(load_s=0.01)
    codes: list[int] = []

    def ask(what: str) -> None:
        for _ in range(10):
            codes.append(live.ask("POST", f"/api/v1/models/beta/{what}", {})[0])

    threads = [threading.Thread(target=ask, args=(what,)) for what in ("load", "unload", "load", "unload")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert set(codes) <= {200, 404, 409}  # unloaded, nothing to unload, busy
    assert live.chat()[0] == 200
    loaded = [talker for talker in live.loader.talkers if not talker.closed]
    assert len(loaded) == 1  # every unloaded model is freed


def test_h42_a_model_that_answers_is_unloaded_by_force_only(start: Start) -> None:
    live = start(step_s=0.01)
    live.chat()
    raw = Raw(live.port).post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3000, "stream": True}
    )
    head = raw.read(300)
    assert live.ask("POST", "/api/v1/models/beta/unload", {})[0] == 409
    assert live.ask("POST", "/api/v1/models/beta/unload", {"force": True})[0] == 200
    data = head + raw.read()
    while b"0\r\n\r\n" not in data:
        data += raw.read()
    assert b'data: {"error":' in data
    assert b"[DONE]" not in data
    assert live.chat()[0] == 200  # loaded again on demand


def test_f16_a_file_that_was_replaced_is_swapped_while_the_old_one_answers(start: Start, tmp_path: Path) -> None:
    live = start(step_s=0.01)
    file = live.app.config.folders[0] / "beta.gguf"
    live.ask("POST", "/api/v1/models/beta/load", {})
    raw = Raw(live.port).post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 100, "stream": True}
    )
    data = raw.read(300)
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 10**9))
    assert live.ask("POST", "/api/v1/models/beta/load", {})[0] == 200
    old, new = live.loader.talkers
    assert not old.closed
    while b"[DONE]" not in data:
        data += raw.read()
    assert until(lambda: old.closed)
    assert live.chat()[0] == 200
    assert len(new.seen) == 1


def test_two_models_answer_side_by_side(live: Live) -> None:
    assert live.chat(model="beta")[2]["model"] == "beta"
    assert live.chat(model="Alpha.Q4")[2]["model"] == "Alpha.Q4"
    assert live.chat(model="beta")[2]["model"] == "beta"
    assert len(live.loader.talkers) == 2
    rows = live.ask("GET", "/api/v1/models")[2]
    assert all(row["loaded"] for row in rows)


def test_an_alias_is_another_name_of_a_model(start: Start) -> None:
    live = start(aliases={"gpt-4o": "alpha.q4"})
    assert live.chat(model="GPT-4o")[2]["model"] == "GPT-4o"
    assert live.ask("GET", "/health")[2]["model"] == "Alpha.Q4"
    assert live.ask("GET", "/v1/models/GPT-4o")[2]["id"] == "gpt-4o"  # as the list has it
    assert live.ask("GET", "/api/v1/models/gpt-4o")[2]["id"] == "Alpha.Q4"
    assert live.ask("POST", "/api/v1/models/gpt-4o/unload", {})[0] == 200
    assert [row["id"] for row in live.ask("GET", "/v1/models")[2]["data"]] == ["beta", "Alpha.Q4", "gpt-4o"]


def test_models_of_the_settings_have_their_name_and_sizes(start: Start, folder: Path) -> None:
    seen: list[int | None] = []
    live = start(configs=(ModelConfig("mine", folder / "beta.gguf", context=99, sequences=1),))
    load = live.loader.load
    loader = live.app.models._loader
    loader._load_model = lambda path, config: (seen.append(config.engine.context), load(path, config))[1]
    assert live.chat(model="mine")[0] == 200
    assert seen == [99]
    assert live.app.models.loaded[0].admission.permits == 1


def test_a_file_of_the_settings_is_one_model_under_all_its_names(start: Start, folder: Path) -> None:
    live = start(configs=(ModelConfig("mine", folder / "beta.gguf"),))
    assert [row["id"] for row in live.ask("GET", "/api/v1/models")[2]] == ["mine", "Alpha.Q4"]
    for name in ("mine", "beta", "BETA.gguf"):
        assert live.chat(model=name)[0] == 200
    assert len(live.loader.talkers) == 1


def test_models_to_preload_are_there_before_anybody_asks(start: Start) -> None:
    live = start(preload=("beta", "ALPHA.Q4"))
    assert until(lambda: all(row["loaded"] for row in live.ask("GET", "/api/v1/models")[2]))
    assert len(live.loader.talkers) == 2


def test_a_server_is_not_ready_while_a_model_to_preload_is_still_looked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, go_on = Registry.find, threading.Event()

    def find_late(registry: Registry, *what: Any) -> Model:
        assert go_on.wait(60)
        return find(registry, *what)

    monkeypatch.setattr(Registry, "find", find_late)
    live = start(preload=("beta",))
    try:
        status, _, body = live.ask("GET", "/health/ready")
        assert (status, body["checks"]["inference_engine"]["message"]) == (503, "a model is being loaded")
    finally:
        go_on.set()
    assert until(lambda: live.ask("GET", "/health/ready")[0] == 200)
    assert live.ask("GET", "/health")[2]["model"] == "beta"


def test_a_name_that_fits_two_files_is_refused_with_both(start: Start, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(folder / "beta.gguf", other / "Beta.gguf")
    live = start(configs=())
    registry = live.app.models.registry
    registry.config = dataclasses.replace(live.app.config, folders=(folder, other))
    status, _, answer = live.chat(model="beta")
    assert (status, answer["error"]["code"]) == (400, "model_error")
    assert "beta.gguf, Beta.gguf" in answer["error"]["message"]
    assert [row["id"] for row in live.ask("GET", "/v1/models")[2]["data"]] == ["Alpha.Q4"]
    registry.settings = dataclasses.replace(live.app.settings, models=(other / "Beta.gguf",))
    assert live.chat(model="beta")[0] == 200  # one of them was named when the server was started


def test_a_name_that_was_asked_for_a_moment_ago_costs_no_walk_over_the_stores(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[int] = []
    find = Registry.find
    monkeypatch.setattr(Registry, "find", lambda self, *what: walks.append(1) or find(self, *what))
    assert [live.chat(model="BETA.gguf")[0] for _ in range(10)] == [200] * 10
    assert len(walks) == 1
    assert live.ask("POST", "/api/v1/models/beta/unload", {})[0] == 200
    assert live.chat(model="BETA.gguf")[0] == 200  # loaded again, not remembered as loaded
    assert len(walks) == 2


@pytest.mark.parametrize("environ", [{}, {"WOOLLY_SEQUENCES": "32"}, {"WOOLLY_ENGINE__MAX_BATCH_SIZE": "3"}])
def test_how_many_are_answered_at_once_is_one_number_for_the_line_and_the_engine(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "models").mkdir()
    tiny(tmp_path / "models" / "talker.gguf")
    config = read_config(environ | {"HOME": str(tmp_path), "WOOLLY_MODELS_DIR": str(tmp_path / "models")}, threads=1)
    app = App(Settings(ports=(0,), log_level="error"), config)
    with Background(app) as background:
        assert ask(background.port, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
        (loaded,) = app.models.loaded
        number = int(next(iter(environ.values()), 16))
        assert (loaded.admission.permits, loaded.model.info.sequences) == (number, number)


def test_thinking_and_variables_of_templates_are_those_of_the_settings(tmp_path: Path) -> None:
    template = "{% if enable_thinking %}thinks{% else %}answers{% endif %} {{ mood }}"
    path = tiny(tmp_path / "a.gguf", meta={"tokenizer.chat_template": template})
    config = read_config({"HOME": str(tmp_path)}, threads=1, disk_bytes=0)
    settings: dict[str, Any]
    for settings, shown in (
        ({}, "thinks "),
        ({"thinking": "off", "chat_template_kwargs": {"mood": "calmly"}}, "answers calmly"),
    ):
        model = load_llm(path, dataclasses.replace(config, engine=dataclasses.replace(config.engine, **settings)))
        try:
            assert model.render(HELLO) == shown
        finally:
            model.close()
