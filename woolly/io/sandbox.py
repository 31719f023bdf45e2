"""A child process for work that might never end: started early, killed when it is late, replaced.

A thread cannot be stopped, and what strangers write (a template, a schema) may keep one busy for hours. The child has
one request at a time; a request that reaches a limit, or that nobody waits for any more (cancellation.py), costs its
process, so nothing of it stays behind.

Messages, in both directions: a length (4 bytes, little-endian), then that many bytes. The first answer comes without a
request: the process is ready. An answer begins with a byte that says what follows; `L` is a limit that was reached.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from woolly.errors import NativeError
from woolly.io.cancellation import POLL_S, check, held

_START_S = 20.0  # a process that needs longer to come up will not come up
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class Child:
    """Owns the process of a script: one at a time, which ends with the program, or with a request beyond a limit.

    work: what it does, in words, for errors. script: a program that imports nothing of Woolly; its first argument lists
    the folders of `libraries`, then come `limits`. seconds: for one request, from when the process is ready for it.
    """

    def __init__(
        self, work: str, script: Path, libraries: tuple[str, ...], limits: Iterable[object], seconds: float
    ) -> None:
        self._work = work
        self._script = script
        self._libraries = libraries
        self._limits = [str(limit) for limit in limits]
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.ready = False  # it has come up
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def start(self) -> None:
        """Starts the process, without waiting until it is ready."""
        with self._lock:
            self._alive()

    def ask(self, request: bytes) -> tuple[str, str]:
        """Sends one request; returns the kind and the text of its answer: the script's, or L with `time` or `crash`."""
        with held(self._lock):
            process, answered = self._ready_process(), False
            deadline = time.monotonic() + self._seconds
            try:
                _send(process, request, deadline)
                kind, text = _receive(process, deadline)
                answered = kind != "L"
            except _Late:
                kind, text = "L", "time"
            except _Gone:
                kind, text = "L", "crash"
            finally:
                if not answered:  # the process may still be at work
                    self._end()
                    self._alive()
            return kind, text

    def _ready_process(self) -> subprocess.Popen[bytes]:
        process = self._alive()
        if not self.ready:
            try:
                _receive(process, time.monotonic() + _START_S)
            except (_Late, _Gone):
                self._end()
                what = f"the process that {self._work} did not start"
                advice = f"check that {self._libraries[0]} is installed"
                raise NativeError(what, suggestion=advice) from None
            self.ready = True
        return process

    def close(self) -> None:
        """Ends the process and waits for it."""
        with self._lock:
            self._end()

    def _forget(self) -> None:
        """In a forked child: the process is the parent's. Its pipes are closed here: it ends when the parent does."""
        process = self._process
        self._lock = threading.Lock()  # the old one may be held by a thread of the parent
        self._process, self.ready = None, False
        if process is not None and process.stdin and process.stdout:
            process.stdin.close()
            process.stdout.close()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = self._spawn()
        return self._process

    def _end(self) -> None:
        process, self._process, self.ready = self._process, None, False
        if process is not None and process.stdin and process.stdout:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        folders = []
        for name in self._libraries:
            library = find_spec(name)
            if library is None or library.origin is None:
                raise NativeError(f"{name} is not installed", suggestion=f"pip install {name}")
            folders.append(str(Path(library.origin).parents[1]))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(self._script), os.pathsep.join(folders), *self._limits],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            start_new_session=True,  # Ctrl-C in the terminal reaches the parent alone
        )
        assert process.stdin and process.stdout
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        return process


class _Late(Exception):
    pass


class _Gone(Exception):
    pass


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
    while not poll.poll(1000 * max(0.0, min(deadline - time.monotonic(), POLL_S))):
        check()
        if time.monotonic() >= deadline:
            raise _Late
