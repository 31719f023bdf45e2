"""`python -m woolly` without the time that Python takes to import it: forked by a process that has all of it in memory.

The result is a process of its own all the same, with its environment, streams, signals and exit code, and a child of
ours that is waited for as any other. It skips only the start of Python, which costs more than all the work of a small
server in a test. Tests of the start itself ask for `fresh`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRELOADED = (
    *("woolly.cli.main", "woolly.cli.serve", "woolly.cli.gate", "woolly.llm.llm", "woolly.server.serve"),
    *("llguidance", "prometheus_client.exposition"),  # modules that a server imports when it first needs them
)
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: a process that sets it inherits the orphans among its descendants
Started = subprocess.Popen[bytes]
MOST = 1 << 17  # bytes of a request


def start(words: Sequence[str], environ: Mapping[str, str], *, fresh: bool = False, **streams: Any) -> Started:
    """`woolly WORDS` with this environment. fresh: by a Python of its own, as a shell starts it."""
    if fresh or sys.platform != "linux":
        return subprocess.Popen([sys.executable, "-m", "woolly", *words], env=environ, **streams)
    return _Forked(words, env=environ, **streams)


class _Forked(subprocess.Popen[bytes]):
    def _execute_child(self, args: Any, *rest: Any) -> None:  # type: ignore[override]
        """In place of fork and exec. Names and positions of the arguments are those of `subprocess.Popen`."""
        cwd, env = rest[4], rest[5]
        stdin, stdin_ours, stdout_ours, stdout, stderr_ours, stderr = rest[9:15]
        streams = (one if one >= 0 else at for at, one in enumerate((stdin, stdout, stderr)))  # by default ours
        self.pid = _mother().fork(args, env, cwd, tuple(streams))
        self._child_created = True
        self._close_pipe_fds(stdin, stdin_ours, stdout_ours, stdout, stderr_ours, stderr)  # type: ignore[attr-defined]


@cache
def _mother() -> _Mother:
    return _Mother()


class _Mother:
    """The connection to the process that has imported Woolly, which ends with this one."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.forked", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
            )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def fork(self, words: list[str], env: dict[str, str], cwd: object, streams: tuple[int, ...]) -> int:
        request = {"words": words, "env": env, "cwd": str(cwd or os.getcwd())}
        libc = ctypes.CDLL(None)
        with self._lock:
            libc.prctl(SUBREAPER, 1)  # only during the fork, so that orphans of other tests are not inherited
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
                return int(self._socket.recv(100))
            finally:
                libc.prctl(SUBREAPER, 0)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(connection: socket.socket) -> list[str]:
    """Fork at each request. Returns only in the new process, with its command line."""
    while True:
        data, streams, _, _ = socket.recv_fds(connection, MOST, 3)
        if not data:
            os._exit(0)
        request, (read_end, write_end) = json.loads(data), os.pipe()
        between = os.fork()
        if not between:
            child = os.fork()
            if not child:
                connection.close()
                os.close(read_end)
                os.close(write_end)
                return _become(request, streams)
            os.write(write_end, str(child).encode())
            os._exit(0)  # orphans the child, so that the requesting process inherits it
        for number in (write_end, *streams):
            os.close(number)
        pid = os.read(read_end, 100)
        os.close(read_end)
        os.waitpid(between, 0)
        connection.send(pid)


def _become(request: dict[str, Any], streams: list[int]) -> list[str]:
    for at, number in enumerate(streams):
        os.dup2(number, at)
        os.close(number)
    for at, (name, way) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        setattr(sys, name, open(at, way, encoding="utf-8", buffering=1 if name == "stderr" else -1))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words: list[str] = request["words"]
    sys.argv = ["woolly", *words]
    return words


def main(number: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process of the tests, and this one follows
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()  # collections do not touch objects before this, so their pages stay shared
    words = _serve(socket.socket(fileno=number))
    return int(sys.modules["woolly.cli.main"].main(words))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
