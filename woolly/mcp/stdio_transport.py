"""The stdio transport: a server that is a command of this machine, with a JSON-RPC message a line over its streams.

The calling thread waits for all three streams itself: no thread reads ahead, so that a server which floods us fills its
own pipe. Between two requests nothing is read.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from woolly.errors import printable
from woolly.io.cancellation import POLL_S, check
from woolly.limits import LIMITS
from woolly.mcp.rpc import METHOD_NOT_FOUND, RpcError, error_response, result_of

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
CHUNK = 64 << 10
STDERR_TAIL = 4 << 10  # bytes kept of the server's standard error
EXIT_WAIT_S = 0.5  # how long a server may take to exit once its input has ended


class StdioTransport:
    """Raises ValueError with what the server did wrong, TimeoutError, OSError, and RpcError for an error response."""

    def __init__(self, command: tuple[str, ...], env: Mapping[str, str]) -> None:
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**inherited, **env},
            start_new_session=True,  # Ctrl-C does not reach it, and killing the group ends all that it started
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._in, self._out, self._err = (
            stream.fileno() for stream in (self._child.stdin, self._child.stdout, self._child.stderr)
        )
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream, False)
        self._unread = b""
        self._stderr_tail = b""  # the end of its standard error

    def request(self, message: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
        """Send a request, and wait for its result."""
        unsent, received = msgspec.json.encode(message) + b"\n", 0
        with selectors.DefaultSelector() as selector:
            for stream in (self._out, self._err):
                selector.register(stream, selectors.EVENT_READ)
            while True:
                while b"\n" in self._unread:
                    line, _, self._unread = self._unread.partition(b"\n")
                    if line.strip():
                        read = _read(line)
                        result = result_of(read, message["id"])
                        if result is not None:
                            return result
                        unsent += _decline(read)
                if len(self._unread) > LIMITS.mcp_message:
                    raise ValueError(f"sent a message of more than {LIMITS.mcp_message:,} bytes")
                if received > LIMITS.mcp_flood:
                    raise ValueError(f"sent more than {LIMITS.mcp_flood:,} bytes and no answer")
                if unsent and self._in not in selector.get_map():
                    selector.register(self._in, selectors.EVENT_WRITE)
                check()
                left = deadline_s - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                for key, _ in selector.select(min(left, POLL_S)):
                    if key.fd == self._in:
                        unsent = self._write(unsent)
                        if not unsent:
                            selector.unregister(self._in)
                    elif key.fd == self._out:
                        received += self._read_out()
                    elif not self._read_err():
                        selector.unregister(self._err)

    def notify(self, message: Mapping[str, Any], deadline_s: float) -> None:
        """Send a notification."""
        self._write(msgspec.json.encode(message) + b"\n")  # a small message fits the empty pipe

    def close(self) -> None:
        """End the process: close its input, and after a moment kill it with everything that it has started."""
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(EXIT_WAIT_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _write(self, data: bytes) -> bytes:
        """Write what the pipe takes; returns what is left to be sent."""
        try:
            return data[os.write(self._in, data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            raise self._exit_error() from None

    def _read_out(self) -> int:
        data = os.read(self._out, CHUNK)
        if not data:
            raise self._exit_error()
        self._unread += data
        return len(data)

    def _read_err(self) -> bool:
        """Read what its standard error has; returns whether there may be more."""
        data = os.read(self._err, CHUNK)
        self._stderr_tail = (self._stderr_tail + data)[-STDERR_TAIL:]
        return bool(data)

    def _exit_error(self) -> ValueError:
        with contextlib.suppress(BlockingIOError):
            while self._read_err():
                pass
        lines = self._stderr_tail.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ValueError("has ended" + (f", and said last: {printable(last, 200)}" if last else ""))


def _read(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"sent what is no JSON: {printable(line[:200], 60)}") from None


def _decline(message: Mapping[str, Any]) -> bytes:
    """The answer to a server's own request: a ping is answered, everything else is a method that we do not have."""
    id_ = message.get("id")
    if not isinstance(id_, str | int):
        return b""
    if message["method"] == "ping":
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "result": {}}
    else:
        answer = error_response(id_, RpcError(METHOD_NOT_FOUND, "this client offers nothing"))
    return msgspec.json.encode(answer) + b"\n"
