"""The command as a user types it, with an empty home and no network: in this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO
from unittest import mock

import pytest

from tests.tiny import tiny
from woolly.cli.main import main

Command = list[str]
Woolly = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that talks nonsense for a long time."""
    return tiny(tmp_path_factory.mktemp("models") / "tiny-talker.gguf", context=65536)


@pytest.fixture
def environ(tmp_path: Path, model: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("WOOLLY_")}
    ours = {"WOOLLY_MODELS_DIR": str(model.parent), "WOOLLY_OFFLINE": "1"}
    return variables | ours | {"HOME": str(tmp_path), "OLLAMA_MODELS": str(tmp_path / "ollama")}


@pytest.fixture
def woolly(environ: dict[str, str]) -> Woolly:
    """Run `woolly` with words; standard input is nothing unless given, as text or as bytes.

    It runs in this process, with the environment and the standard streams of a process of its own: a start of Python
    costs more than most commands do. What a start is part of is tested with `started`.
    """

    def run(*words: str, stdin: str | bytes | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        with (
            tempfile.TemporaryFile() as data_file,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            open(os.devnull, "rb") as nothing,
        ):
            data = _bytes(stdin)
            data_file.write(data or b"")
            data_file.seek(0)
            streams = {"stdin": nothing if data is None else data_file, "stdout": out, "stderr": err}
            with mock.patch.dict(os.environ, environ | env, clear=True), _standard(streams):
                code = main(list(words))
            return subprocess.CompletedProcess(words, code, _read(out), _read(err))

    return run


@pytest.fixture
def started(environ: dict[str, str]) -> Woolly:
    """The same in a process of its own, as a shell starts it."""

    def run(*words: str, stdin: str | bytes | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        data = _bytes(stdin)
        stdin_of: dict[str, object] = {"stdin": subprocess.DEVNULL} if data is None else {"input": data}
        done = subprocess.run(  # type: ignore[call-overload]
            command(*words), env=environ | env, capture_output=True, timeout=60, check=False, **stdin_of
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def command(*words: str) -> Command:
    return [sys.executable, "-m", "woolly", *words]


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


@contextmanager
def _standard(files: Mapping[str, IO[bytes]]) -> Iterator[None]:
    """Make these files the standard streams, down to the descriptors: commands ask those what they are."""
    with ExitStack() as stack:
        for number, (name, file) in enumerate(files.items()):
            before = os.dup(number)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
            stream = stack.enter_context(open(number, "w" if number else "r", encoding="utf-8", closefd=False))
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
