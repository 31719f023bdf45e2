"""The command as a user starts it: a process of its own, with an empty home and no network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny import tiny

Command = list[str]
Woolly = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that talks nonsense for a long time."""
    return tiny(tmp_path_factory.mktemp("models") / "tiny-talker.gguf", context=65536)


@pytest.fixture
def environ(tmp_path: Path, model: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WOOLLY_")}
    ours = {"WOOLLY_MODELS_DIR": str(model.parent), "WOOLLY_OFFLINE": "1"}
    return kept | ours | {"HOME": str(tmp_path), "OLLAMA_MODELS": str(tmp_path / "ollama")}


@pytest.fixture
def woolly(environ: dict[str, str]) -> Woolly:
    """Run `woolly` with words; standard input is nothing unless given, as text or as bytes."""

    def run(*words: str, stdin: str | bytes | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        given: dict[str, object] = {"stdin": subprocess.DEVNULL} if data is None else {"input": data}
        done = subprocess.run(  # type: ignore[call-overload]
            command(*words), env=environ | env, capture_output=True, timeout=60, check=False, **given
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def command(*words: str) -> Command:
    return [sys.executable, "-m", "woolly", *words]
