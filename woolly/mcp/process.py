"""A server that is a command of this machine: a JSON-RPC message a line over its standard streams.

Whoever asks waits here itself, for all three streams at once: no thread reads ahead, so that a server which floods us
fills its own pipe. Between two questions nothing is read.
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
from woolly.limits import LIMITS
from woolly.mcp.rpc import NO_METHOD, RpcError, failed, result_of

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
CHUNK = 64 << 10
LAST_WORDS = 4 << 10  # bytes of its standard error that are kept
PATIENCE_S = 1.0  # to end by itself once its input has ended


class Process:
    """Raises ValueError with what the server did wrong, TimeoutError, OSError, and RpcError for an error it tells."""

    def __init__(self, command: tuple[str, ...], env: Mapping[str, str]) -> None:
        kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**kept, **env},
            start_new_session=True,  # Ctrl-C is for us, and an end is for all that it started
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
        self._said = b""  # the last of its standard error

    def ask(self, message: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
        """Send a request, and wait for its result."""
        sending, came = msgspec.json.encode(message) + b"\n", 0
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
                        sending += _refusal(read)
                if len(self._unread) > LIMITS.mcp_message:
                    raise ValueError(f"sent a message of more than {LIMITS.mcp_message:,} bytes")
                if came > LIMITS.mcp_flood:
                    raise ValueError(f"sent more than {LIMITS.mcp_flood:,} bytes and no answer")
                if sending and self._in not in selector.get_map():
                    selector.register(self._in, selectors.EVENT_WRITE)
                ready = selector.select(max(0.0, deadline_s - time.monotonic()))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if key.fd == self._in:
                        sending = self._write(sending)
                        if not sending:
                            selector.unregister(self._in)
                    elif key.fd == self._out:
                        came += self._read_out()
                    elif not self._read_err():
                        selector.unregister(self._err)

    def tell(self, message: Mapping[str, Any], deadline_s: float) -> None:
        """Send a notification."""
        self._write(msgspec.json.encode(message) + b"\n")  # a small one, and nothing waits before it

    def close(self) -> None:
        """End it: by the end of its input, or after a moment with all that it has started."""
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def _write(self, data: bytes) -> bytes:
        """What is left to be sent."""
        try:
            return data[os.write(self._in, data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            raise self._ended() from None

    def _read_out(self) -> int:
        data = os.read(self._out, CHUNK)
        if not data:
            raise self._ended()
        self._unread += data
        return len(data)

    def _read_err(self) -> bool:
        """Whether there may be more."""
        data = os.read(self._err, CHUNK)
        self._said = (self._said + data)[-LAST_WORDS:]
        return bool(data)

    def _ended(self) -> ValueError:
        with contextlib.suppress(BlockingIOError):
            while self._read_err():
                pass
        lines = self._said.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ValueError("has ended" + (f", and said last: {printable(last, 200)}" if last else ""))


def _read(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"sent what is no JSON: {printable(line[:200], 60)}") from None


def _refusal(message: Mapping[str, Any]) -> bytes:
    """What a server is answered that asks for something itself: we offer it nothing, but are there."""
    id_ = message.get("id")
    if not isinstance(id_, str | int):
        return b""
    if message["method"] == "ping":
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "result": {}}
    else:
        answer = failed(id_, RpcError(NO_METHOD, "this client offers nothing"))
    return msgspec.json.encode(answer) + b"\n"
