"""The other side of a comparison: llama.cpp through its Python package, or a llama-bench program.

Both run in processes of their own with the same number of threads and the same forced tokens, each with repacked
weights and without: which is faster depends on the tensor types, and the better one is the peer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from woolly.bench.model import SpeedTest
from woolly.errors import NativeError, NotFoundError, printable

SETTINGS = ("repack", "no repack")
COOLDOWN_S = 0.01  # after a slice: the peer's threads spin for a while before they sleep
WORKER = Path(__file__).with_name("llama_peer.py")
INSTALL = (
    "install it into an environment of its own: `python3 -m venv peer && CMAKE_ARGS=-DGGML_NATIVE=ON peer/bin/pip "
    "install --no-binary llama-cpp-python llama-cpp-python`, then set WOOLLY_PEER_PYTHON=peer/bin/python"
)


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """How the peer is loaded."""

    model: str
    threads: int
    positions: int
    sequences: int
    kv: str
    repack: bool = True


def find_peer(word: str, python: str) -> str:
    """The program that `--against` names: llama-bench, or a Python that has llama_cpp."""
    if word != "llama.cpp":
        program = shutil.which(word)
        if program is None:
            raise NotFoundError(
                f"there is no program '{printable(word)}'",
                suggestion="--against takes llama.cpp or a path of llama-bench",
            )
        return program
    python = python or sys.executable
    question = "import importlib.util as u, sys; sys.exit(u.find_spec('llama_cpp') is None)"
    try:
        installed = subprocess.run([python, "-I", "-c", question], capture_output=True, check=False).returncode == 0
    except OSError:
        installed = False
    if not installed:
        raise NotFoundError(f"the Python {printable(python)} has no llama_cpp", suggestion=INSTALL)
    return python


class LlamaCppPeer:
    """llama.cpp in a fresh process, fed line by line."""

    def __init__(self, python: str, options: PeerOptions) -> None:
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  a pipe nobody empties would stop it
        self._process = subprocess.Popen(
            [python, "-I", str(WORKER), json.dumps(asdict(options))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            about = self._answer()
        except BaseException:
            self.close()
            raise
        self.version = f"llama-cpp-python {about['version']}"
        self.load_s: float | None = float(about["load_s"])
        self.pids: tuple[int, ...] = (self._process.pid,)

    def supports(self, test: SpeedTest) -> bool:
        return True

    def fill(self, test: SpeedTest) -> None:
        if test.depth:
            self._ask(kind="fill", depth=test.depth, sequences=test.sequences)

    def seconds(self, test: SpeedTest, count: int) -> float:
        return self._ask(kind=test.kind, count=count, depth=test.depth, sequences=test.sequences)

    def close(self) -> None:
        """Close its input, and kill the process if it does not end by itself."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ask(self, **request: object) -> float:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._exit_error() from None
        seconds = float(self._answer()["seconds"])
        time.sleep(COOLDOWN_S)
        return seconds

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._exit_error()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _exit_error(self) -> NativeError:
        self._process.wait(10)
        self._log.seek(0)
        return NativeError(f"the peer has ended: {_last_line(self._log.read())}")


class LlamaBenchPeer:
    """The program llama-bench, started anew for each slice, which it times without the loading of the model."""

    load_s: float | None = None
    pids: tuple[int, ...] = ()

    def __init__(self, program: str, options: PeerOptions) -> None:
        self._program, self._options = program, options
        self.version = Path(program).name

    def supports(self, test: SpeedTest) -> bool:
        return test.sequences == 1

    def fill(self, test: SpeedTest) -> None:
        pass  # llama-bench fills its own cache

    def seconds(self, test: SpeedTest, count: int) -> float:
        done = subprocess.run(self.command(test, count), capture_output=True, text=True, check=False)
        if done.returncode:
            raise NativeError(f"{self.version} failed: {_last_line(done.stderr)}")
        return slice_seconds(done.stdout)

    def command(self, test: SpeedTest, count: int) -> list[str]:
        o = self._options
        kv = {"q8": "q8_0"}.get(o.kv, o.kv)
        sizes = {"-p": count, "-n": 0} if test.kind == "prompt" else {"-p": 0, "-n": count}
        options = {
            "-m": o.model, "-t": o.threads, **sizes, "-d": test.depth, "-r": 1, "-o": "json", "-ngl": 0,
            "-ctk": kv, "-ctv": kv, "--repack": int(o.repack),
        }  # fmt: skip
        return [self._program, *(str(word) for pair in options.items() for word in pair)]

    def close(self) -> None:
        pass


Peer: TypeAlias = LlamaCppPeer | LlamaBenchPeer


def start_peer(word: str, program: str, options: PeerOptions) -> Peer:
    """The peer that `find_peer` found, loaded."""
    return LlamaCppPeer(program, options) if word == "llama.cpp" else LlamaBenchPeer(program, options)


def _last_line(text: str) -> str:
    return printable((text.strip().splitlines() or ["it printed nothing"])[-1], 300)


def slice_seconds(text: str) -> float:
    """The seconds of the one test in llama-bench's JSON."""
    try:
        (test,) = json.loads(text)
        return float(test["avg_ns"]) / 1e9
    except (ValueError, KeyError, TypeError) as error:
        raise NativeError(f"llama-bench's answer is not understood: {printable(error, 200)}") from None
