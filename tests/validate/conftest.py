"""A tiny model whose text is plain ASCII, so that its tokens can be counted, and servers that answer with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import byte_letters, tiny
from tests.validate.serving import Calm, Even, Simulation
from woolly import LLM
from woolly.cli.main import main
from woolly.store import identity

VOCAB, WIDTH = 288, 64
CONFIG = {
    "tests": {
        "inference_speed": {
            "max_tokens": 64, "prompt_lengths": [16, 128], "batch_sizes": [1, 2],
            "rounds": 3, "slices": 2, "slice_tokens": 8,
        },
        "model_loading": {"iterations": 1},
        "quality_validation": {"consistency_runs": 2, "checked_prompts": 3, "checked_tokens": 10, "prompts": 1},
        "load_testing": {"concurrent_users": [1, 3], "duration": 1.0, "max_tokens": 8, "think_time": [0, 0.1]},
        "comparative": {"seconds": 1.0},
        "reliability": {"duration": 3.0, "users": 2, "pause": [0, 0], "check_interval": 0.5},
    }
}  # fmt: skip


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No byte beyond ASCII and no control token is ever the likeliest."""
    plain = np.zeros(VOCAB, bool)
    plain[[byte for byte in range(256) if 32 <= byte < 127]] = True
    plain[len(byte_letters()) : VOCAB - 18] = True
    inner, head = (
        np.random.default_rng(7).standard_normal((rows, WIDTH), np.float32) * np.float32(3 / WIDTH**0.5)
        for rows in (WIDTH, VOCAB)
    )
    head[~plain] = 0
    values = {"attn_output.weight": inner, "output.weight": head}
    path = tmp_path_factory.mktemp("validate") / "plain-talker.gguf"
    return tiny(path, tied=False, vocab=VOCAB, context=4096, values=values)


@pytest.fixture(scope="session")
def llm(model: Path) -> Iterator[LLM]:
    with LLM(model) as loaded:
        yield loaded


@pytest.fixture
def simulation(llm: LLM, model: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Servers to validate, in a time of their own. All that `woolly.validate` has of this machine is replaced."""
    servers = Simulation(llm, identity(model))
    for place, stand_in in {
        "woolly.validate.client.ask": servers.ask,
        "woolly.device.cpu.clock_hz": lambda: 3e9,
        "woolly.validate.client.time": servers.clock,
        "woolly.validate.users.time": servers.clock,
        "woolly.validate.process.repeated": servers.clock.repeated,
        "woolly.validate.categories.reliability.repeated": servers.clock.repeated,
        "woolly.validate.process.usage_of": servers.usage_of,
        "woolly.validate.subject.usage_of": servers.usage_of,
        "woolly.validate.process.listening_pid": lambda port: port,
        "woolly.validate.categories.comparative.listening_pid": lambda port: port,
        "woolly.validate.subject.Watch": Calm,
        "woolly.validate.categories.comparative.Watch": Calm,
        "woolly.validate.yardstick.Yardstick": Even,
    }.items():
        monkeypatch.setattr(place, stand_in)
    return servers


@dataclass(frozen=True)
class Done:
    code: int
    report: dict[str, Any]

    def states(self) -> dict[str, str]:
        return {row["name"]: row["state"] for row in self.report["gates"]}

    def failed(self) -> dict[str, str]:
        """The gates that fail, with what is said of them."""
        return {row["name"]: row["why"] for row in self.report["gates"] if row["state"] == "fail"}


Validate = Callable[..., Done]


@pytest.fixture
def validate(model: Path, tmp_path: Path) -> Validate:
    """`woolly validate` with small settings; the code that it ends with, and its report."""

    def run(*words: str, of: Path = model, **changes: dict[str, Any]) -> Done:
        tests = {name: CONFIG["tests"].get(name, {}) | changes.get(name, {}) for name in CONFIG["tests"] | changes}
        (tmp_path / "config.json").write_text(json.dumps({"tests": tests}))
        out = tmp_path / "out"
        for old in out.glob("*"):
            old.unlink()
        code = main(["validate", str(of), "--config", str(tmp_path / "config.json"), "--output", str(out), *words])
        reports = list(out.glob("*.json"))
        return Done(code, json.loads(reports[0].read_text()) if reports else {})

    return run
