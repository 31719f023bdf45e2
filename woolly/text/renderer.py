"""The life of the one child process that renders chat templates (worker.py): started early, killed when late, replaced.

One process for all templates of a program, one render at a time. A render that reaches a limit costs its process: the
next one starts in a fresh one, so nothing of a bad template stays behind.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from woolly.errors import NativeError, RequestError
from woolly.limits import LIMITS

_START_S = 20.0  # a process that needs longer to come up will not come up
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class Renderer:
    """Owns the process; the rest of the room sends requests through `RENDERER`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def start(self) -> None:
        """Starts the process, without waiting until it is ready."""
        with self._lock:
            self._alive()

    def render(self, request: bytes) -> tuple[str, str]:
        """Sends one request; the kind and the text of its answer, as worker.py lists them."""
        with self._lock:
            process = self._alive()
            deadline = time.monotonic() + _START_S
            if not self._ready:
                try:
                    _receive(process, deadline)
                except (_Late, _Gone):
                    self._end()
                    what = "the process that renders chat templates did not start"
                    raise NativeError(what, suggestion="check that jinja2 is installed") from None
                self._ready = True
            deadline = time.monotonic() + LIMITS.template_s
            try:
                _send(process, request, deadline)
                kind, text = _receive(process, deadline)
            except _Late:
                kind, text = "L", "time"
            except _Gone:
                kind, text = "L", "crash"
            if kind == "L":
                self._end()
                self._alive()
            return kind, text

    def close(self) -> None:
        """Ends the process and waits for it."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """In a forked child: the process is the parent's. Its pipes are closed here: it ends when the parent does."""
        process = self._process
        self._lock = threading.Lock()  # the old one may be held by a thread that is not here
        self._process, self._ready = None, False
        if process is not None and process.stdin and process.stdout:
            process.stdin.close()
            process.stdout.close()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = _spawn()
        return self._process

    def _end(self) -> None:
        process, self._process, self._ready = self._process, None, False
        if process is not None and process.stdin and process.stdout:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


class _Late(Exception):
    pass


class _Gone(Exception):
    pass


def _spawn() -> subprocess.Popen[bytes]:
    folders = []
    for name in ("jinja2", "markupsafe"):
        library = find_spec(name)
        if library is None or library.origin is None:
            raise NativeError(f"{name} is not installed", suggestion=f"pip install {name}")
        folders.append(str(Path(library.origin).parents[1]))
    worker = str(Path(__file__).with_name("worker.py"))
    limits = (str(LIMITS.template_memory), str(LIMITS.template_output), str(2 * LIMITS.template_s))
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", worker, os.pathsep.join(folders), *limits],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
        start_new_session=True,  # Ctrl-C in the terminal is for us alone
    )
    assert process.stdin and process.stdout
    os.set_blocking(process.stdin.fileno(), False)
    os.set_blocking(process.stdout.fileno(), False)
    return process


def _send(process: subprocess.Popen[bytes], request: bytes, deadline: float) -> None:
    assert process.stdin
    pipe = process.stdin.fileno()
    data = memoryview(len(request).to_bytes(4, "little") + request)
    while data:
        _wait(pipe, select.POLLOUT, deadline)
        try:
            data = data[os.write(pipe, data) :]
        except BrokenPipeError:
            raise _Gone from None


def _receive(process: subprocess.Popen[bytes], deadline: float) -> tuple[str, str]:
    assert process.stdout
    pipe = process.stdout.fileno()
    size = int.from_bytes(_read(pipe, 4, deadline), "little")
    answer = _read(pipe, size, deadline)
    return chr(answer[0]), answer[1:].decode("utf-8", "replace")


def _read(pipe: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(pipe, select.POLLIN, deadline)
        part = os.read(pipe, min(size - len(data), 1 << 20))
        if not part:
            raise _Gone
        data += part
    return bytes(data)


def _wait(pipe: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise _Late


def refusal(kind: str, text: str) -> RequestError:
    """The error that an answer of the worker stands for."""
    if kind == "R":
        return RequestError(f"the chat template refuses these messages: {text}")
    if kind == "L":
        limits = {
            "time": f"took longer than {LIMITS.template_s:g} s",
            "memory": f"needed more than {LIMITS.template_memory >> 20} MiB of memory",
            "output": f"wrote more than {LIMITS.template_output >> 20} MiB",
            "crash": "broke the process that renders it",
        }
        return RequestError(f"the chat template {limits[text]}", code="model_error", error_code="TEMPLATE_LIMIT")
    return RequestError(f"the chat template failed: {text}", code="model_error", error_code="TEMPLATE_ERROR")


RENDERER = Renderer()
atexit.register(RENDERER.close)
os.register_at_fork(after_in_child=RENDERER.forget)
