"""Models in memory: how long they stay, which is unloaded for another, separate adapters, and turns between engines."""

from __future__ import annotations

import shutil
import threading
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.lora import adapter
from tests.server.background import Background
from tests.server.conftest import Live, Start
from tests.server.raw import Raw
from tests.server.stand_in import Talker, TalkerLoader, until
from tests.tiny import tiny
from woolly.config import Config, read_config
from woolly.config.rows import ModelConfig, duration
from woolly.device import CPU, StepSize
from woolly.errors import BusyError
from woolly.server import App, Settings

ASK = {"model": "beta", "prompt": "Hi", "stream": False, "options": {"num_predict": 2}}


def loaded(live: Live) -> list[str]:
    return [row["name"] for row in live.ask("GET", "/api/ps")[2]["models"]]


def expires(live: Live) -> float:
    (row,) = live.ask("GET", "/api/ps")[2]["models"]
    return datetime.fromisoformat(row["expires_at"]).timestamp() - time.time()


@pytest.mark.parametrize(
    ("keep_alive", "seconds"),
    [
        (0, 0),
        (5, 5),
        (1.5, 1.5),
        ("0", 0),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        (-1, -1),
        ("-1", -1),
        ("-5m", -1),
        ("9" * 400, 2**31 - 1),
    ],
)
def test_a_duration_is_a_number_of_seconds_or_a_time_with_units(keep_alive: Any, seconds: float) -> None:
    assert duration(keep_alive) == seconds


@pytest.mark.parametrize("keep_alive", ["", "m", "5 m", "5x", "soon", "1e3", "5m-", True, None, "nan"])
def test_what_is_no_duration_is_refused(keep_alive: Any) -> None:
    with pytest.raises(ValueError):
        duration(keep_alive)


def test_a_model_stays_where_nobody_says_how_long(live: Live) -> None:
    assert live.ask("POST", "/api/generate", ASK)[0] == 200
    assert expires(live) > 1e9
    assert b'woolly:unloaded_in_seconds{model_name="beta"} -1.0' in live.ask("GET", "/metrics")[2]


def test_keep_alive_of_nothing_unloads_after_the_answer(live: Live) -> None:
    code, _, answer = live.ask("POST", "/api/generate", ASK | {"keep_alive": 0})
    assert (code, answer["done_reason"]) == (200, "length")
    assert until(lambda: loaded(live) == [])
    assert until(lambda: live.loader.talkers[0].closed)
    assert "keep_alive" not in str(live.ask("POST", "/api/generate", ASK)[1].get("x-woolly-notes"))
    assert len(live.loader.talkers) == 2


def test_an_idle_model_is_unloaded_in_time_and_one_in_use_is_not(start: Start) -> None:
    live = start(step_s=0.01, keep_alive=10.0)
    raw = Raw(live.port).post("/v1/completions", {"prompt": "Once", "max_tokens": 40, "stream": True})
    data = raw.read(200)
    live.forward(15)
    while b"[DONE]" not in data:
        data += raw.read()
    assert b'"finish_reason":"length"' in data  # the answer took longer than the model may be idle
    raw.close()
    assert loaded(live) == ["beta"] and expires(live) > -1
    live.forward(10)
    assert until(lambda: loaded(live) == [])


def test_the_last_keep_alive_counts_and_a_request_without_one_changes_nothing(start: Start) -> None:
    live = start(keep_alive=0.2)
    assert live.ask("POST", "/api/generate", ASK | {"keep_alive": "10m"})[0] == 200
    assert live.chat(model="beta")[0] == 200
    assert 500 < expires(live) < 601
    assert live.ask("POST", "/api/generate", ASK | {"keep_alive": -1})[0] == 200
    assert expires(live) > 1e9
    assert live.ask("POST", "/api/generate", {"model": "beta", "keep_alive": 0})[2]["done_reason"] == "unload"
    assert loaded(live) == []


def test_a_model_that_is_only_loaded_is_unloaded_too(start: Start) -> None:
    live = start(keep_alive=0.2)
    assert live.ask("POST", "/api/v1/models/beta/load", {})[0] == 200
    assert until(lambda: loaded(live) == [])


def test_who_has_no_key_does_not_decide_how_long_a_model_stays(start: Start) -> None:
    live = start(keys=(b"x" * 32,), anonymous=True)
    code, headers, _ = live.ask("POST", "/api/generate", ASK | {"keep_alive": 0})
    assert (code, headers["x-woolly-notes"]) == (200, "keep_alive")
    time.sleep(0.1)
    assert [model.id for model in live.app.models.loaded] == ["beta"]


def test_beyond_the_bound_the_model_that_was_used_longest_ago_makes_way(start: Start) -> None:
    live = start(max_loaded=1)
    assert live.chat(model="beta")[0] == 200
    assert live.chat(model="Alpha.Q4")[0] == 200
    assert loaded(live) == ["Alpha.Q4"]
    assert live.loader.talkers[0].closed


def test_a_model_in_use_does_not_make_way_and_the_refusal_says_so(start: Start) -> None:
    live = start(max_loaded=1, step_s=0.01)
    raw = Raw(live.port).post("/v1/completions", {"prompt": "Once", "max_tokens": 900, "stream": True, "model": "beta"})
    raw.read(100)
    code, headers, answer = live.chat(model="Alpha.Q4")
    assert (code, headers["retry-after"]) == (503, "1")
    assert "models.max_loaded is 1" in answer["error"]["message"]
    raw.close()
    assert until(lambda: live.chat(model="Alpha.Q4")[0] == 200)


class Small(TalkerLoader):
    """A machine with memory for one model."""

    def load(self, path: Path, config: Config) -> Talker:
        if any(not talker.closed for talker in self.talkers):
            raise BusyError("needed are 2 GiB, free is 1 GiB", code="not_enough_memory")
        return super().load(path, config)


def test_where_memory_is_short_idle_models_make_way_and_else_both_numbers_are_told(start: Start) -> None:
    live = start(step_s=0.01)
    live.app.models._loader._load_model = Small(0.01).load
    assert live.chat(model="beta")[0] == 200
    assert live.chat(model="Alpha.Q4")[0] == 200
    assert loaded(live) == ["Alpha.Q4"]
    body = {"prompt": "Once", "max_tokens": 900, "stream": True, "model": "Alpha.Q4"}
    raw = Raw(live.port).post("/v1/completions", body)
    raw.read(100)
    code, _, answer = live.chat(model="beta")
    assert code == 503 and "2 GiB" in answer["error"]["message"] and "1 GiB" in answer["error"]["message"]
    raw.close()


def test_f08_memory_that_runs_out_in_a_load_refuses_that_request_and_the_next_load_is_tried(start: Start) -> None:
    live, loader = start(), TalkerLoader(0.0)
    tried: list[Path] = []

    def load(path: Path, config: Config) -> Talker:
        tried.append(path)
        if len(tried) == 1:
            raise MemoryError
        return loader.load(path, config)

    live.app.models._loader._load_model = load
    code, headers, answer = live.chat(model="beta")
    assert (code, headers["retry-after"]) == (503, "1")
    assert "there is not enough memory for the model" in answer["error"]["message"]
    assert live.chat(model="beta")[0] == 200


def test_two_busy_models_take_turns_step_by_step(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step begins before the other model's has ended, and none of the two has two in a row. A step ends once the
    other model waits, so the order comes from the queue, not from their speed."""
    live, both_run = start(), threading.Event()
    names = ("beta", "Alpha.Q4")
    for name in names:
        assert live.chat(model=name)[0] == 200
    steps: list[tuple[float, float, str]] = []
    for name, talker in zip(names, live.loader.talkers, strict=True):

        def run(size: StepSize, name: str = name, inner: Any = talker.runner.run) -> Any:
            begun = time.perf_counter()
            outputs = inner(size)
            while both_run.is_set() and not CPU.queue._line:
                time.sleep(0.0001)
            steps.append((begun, time.perf_counter(), name))
            return outputs

        monkeypatch.setattr(talker.runner, "run", run)
    body = {"prompt": "Once", "max_tokens": 2000, "stream": True}
    streams = [Raw(live.port).post("/v1/completions", body | {"model": name}) for name in names]
    for raw in streams:
        raw.read(100)
    both_run.set()
    try:
        before = len(steps)
        assert until(lambda: len(steps) > before + 40)
    finally:
        both_run.clear()
    rows = sorted(steps[before + 2 : before + 40])
    for raw in streams:
        raw.close()
    assert all(one[1] <= other[0] for one, other in pairwise(rows))
    assert all(one[2] != other[2] for one, other in pairwise(rows))


def test_an_adapter_belongs_to_its_model_and_another_model_loads_without_it(tmp_path: Path) -> None:
    models, home = tmp_path / "models", tmp_path / "home"
    models.mkdir()
    base = tiny(models / "base.gguf")
    tiny(models / "other.gguf", seed=3, width=128)
    shutil.copy(models / "other.gguf", models / "third.gguf")
    adapter(tmp_path / "pirate.gguf", base)
    adapter(tmp_path / "judge.gguf", models / "third.gguf")
    environ = {"HOME": str(home), "WOOLLY_MODELS_DIR": str(models)}
    config = read_config(environ, lora=[str(tmp_path / "pirate.gguf")], threads=1)
    own = ModelConfig("third", models / "third.gguf", lora=(str(tmp_path / "judge.gguf"),))
    settings = Settings(ports=(0,), log_level="error", default_model="base", configs=(own,))
    with Background(App(settings, config)) as background:
        live = Live(background._listener.app, TalkerLoader(), background)
        for name in ("base", "other", "third"):
            code, _, answer = live.ask("POST", "/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1})
            assert code == 200, answer
        names = {model.id: [*model.model.adapters.files] for model in live.app.models.loaded}
    assert names == {"base": ["pirate"], "other": [], "third": ["judge"]}
