"""Servers in a thread of this process, over a stand-in for the model, with a folder of tiny files to list."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.server.background import Background
from tests.server.process import Process, environ
from tests.server.raw import ask
from tests.server.stand_in import TalkerLoader
from tests.tiny import tiny
from woolly.config import read_config
from woolly.config.rows import ModelConfig
from woolly.config.serving import SERVING
from woolly.server import App, Settings


@dataclass
class Live:
    """A server that runs, and how to speak to it."""

    app: App
    loader: TalkerLoader
    background: Background

    @property
    def port(self) -> int:
        return self.background.port

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers in lower case and the body, read as JSON where it is."""
        return ask(self.port, method, path, body, headers)

    def forward(self, seconds: float) -> None:
        """Put the server's clock forward, and wait until all that became due has been done."""
        self.background.forward(seconds)

    def chat(self, **fields: Any) -> tuple[int, dict[str, str], Any]:
        return self.ask("POST", "/v1/chat/completions", {"messages": HELLO, "max_tokens": 5} | fields)


HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models-of-an-odd-name")
    tiny(path / "Alpha.Q4.gguf")
    tiny(path / "beta.gguf", seed=2)
    return path


Start = Callable[..., Live]


def named(folder: Path) -> dict[str, Any]:
    """Both models, the second one first: it is the default, and no other name is answered."""
    return {"configs": tuple(ModelConfig(name, folder / f"{name}.gguf") for name in ("beta", "Alpha.Q4"))}


@contextlib.contextmanager
def starting(folder: Path, home: Path) -> Iterator[Start]:
    """Start servers that end with the block; limits by name, everything else is a setting."""
    with contextlib.ExitStack() as stack:

        def begin(
            *,
            limits: dict[str, Any] | None = None,
            step_s: float = 0.0,
            load_s: float = 0.0,
            script: str = "",
            port: int = 0,
            log_level: str = "error",
            **settings: Any,
        ) -> Live:
            sequences = 4  # as many as the stand-in computes at once
            config = read_config({"HOME": str(home), "WOOLLY_MODELS_DIR": str(folder)}, sequences=sequences)
            config = dataclasses.replace(config, folders=(folder,), hub=home / "hub", ollama=(home / "ollama",))
            chosen = Settings(
                ports=(port,),
                log_level=log_level,
                limits=dataclasses.replace(SERVING, **(limits or {})),
                **(named(folder) | settings),
            )
            loader = TalkerLoader(step_s, load_s, script)
            app = App(chosen, config, load=loader.load)
            return Live(app, loader, stack.enter_context(Background(app)))

        yield begin


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    with starting(folder, tmp_path) as begin:
        yield begin


@pytest.fixture
def live(start: Start) -> Live:
    return start()


@contextlib.contextmanager
def real_server(
    folders: pytest.TempPathFactory,
    name: str,
    *,
    context: int,
    limits: dict[str, Any],
    meta: dict[str, Any] | None = None,
    exact: bool = False,
    **settings: Any,
) -> Iterator[Live]:
    """A server in a thread of this process, with a real model of that name and no settings of this machine."""
    home, models = folders.mktemp("home"), folders.mktemp("models")
    tiny(models / f"{name}.gguf", context=context, meta=meta or {})
    config = read_config({"HOME": str(home), "WOOLLY_MODELS_DIR": str(models)}, threads=1, exact=exact)
    config = dataclasses.replace(config, folders=(models,), hub=home / "hub")
    chosen = Settings(ports=(0,), log_level="error", limits=dataclasses.replace(SERVING, **limits), **settings)
    app = App(chosen, config)
    with Background(app) as background:
        yield Live(app, TalkerLoader(), background)


@pytest.fixture(scope="session")
def talkers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a real model whose answers are words, and long."""
    folder = tmp_path_factory.mktemp("talkers")
    tiny(folder / "talker.gguf", vocab=4096, seed=5, context=8192)
    return folder


@pytest.fixture(scope="session")
def served(talkers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """`woolly serve` as a process of its own, with that model."""
    with Process(environ(tmp_path_factory.mktemp("home"), talkers)) as process:
        yield process
