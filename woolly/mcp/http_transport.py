"""The HTTP transport: a server behind a URL, where each message is a POST, answered with JSON or with events.

Each message has a connection of its own, which is cut when its time is over, so that slow bytes cannot prolong the
wait, and when nobody waits for the answer any more. A redirect is not followed: the settings allow one address and no
other. A server may end its events early, and send the rest when asked.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from woolly.errors import printable
from woolly.io.cancellation import POLL_S, check, pause, stopping
from woolly.limits import LIMITS
from woolly.mcp.rpc import NAME_PARAMS, RpcError, is_newest, result_of, revision
from woolly.version import __version__

SESSION, VERSION = "Mcp-Session-Id", "MCP-Protocol-Version"


class HttpTransport:
    """Raises what `StdioTransport` raises."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = urlsplit(url)
        self._headers = dict(headers)
        self._session: dict[str, str] = {}  # headers of the session, from the handshake

    def request(self, message: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
        """Send a request, and wait for its result."""
        headers, events = self._all_headers(message), _Events()
        with self._exchange("POST", msgspec.json.encode(message), headers, deadline_s) as answer:
            if session := answer.getheader(SESSION):
                self._session[SESSION] = session
            result = _result(answer, message["id"], events)
        while result is None and events.last_id:
            pause(min(events.retry_s, max(0.0, deadline_s - time.monotonic())))
            headers = self._all_headers(message) | {"Last-Event-ID": events.last_id}
            with self._exchange("GET", None, headers, deadline_s) as answer:
                result = _result(answer, message["id"], events)
        if result is None:
            raise ValueError("ended its answer without a result")
        if message["method"] == "initialize":
            self._session[VERSION] = str(result.get("protocolVersion"))
        return result

    def notify(self, message: Mapping[str, Any], deadline_s: float) -> None:
        """Send a notification."""
        with self._exchange("POST", msgspec.json.encode(message), self._all_headers(message), deadline_s):
            pass

    def close(self) -> None:
        """Does nothing: no connection is open between two messages."""

    @contextlib.contextmanager
    def _exchange(
        self, method: str, body: bytes | None, headers: Mapping[str, str], deadline_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request, cut off at the deadline."""
        host, secure = self._url.hostname or "", self._url.scheme == "https"
        connection = http.client.HTTPConnection(host, self._url.port or (443 if secure else 80))
        sock = _connect(host, connection.port, deadline_s)
        timed_out = threading.Event()

        def cut() -> None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

        def end() -> None:
            timed_out.set()
            cut()

        timer = threading.Timer(max(0.0, deadline_s - time.monotonic()), end)
        timer.daemon = True
        timer.start()
        try:
            if secure:
                context = ssl.create_default_context()
                sock = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
            with stopping(cut):
                if isinstance(sock, ssl.SSLSocket):
                    sock.do_handshake()
                connection.sock = sock
                path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
                connection.request(method, path, body, dict(headers))
                with connection.getresponse() as answer:
                    yield answer
        except (OSError, http.client.HTTPException, ValueError):
            check()
            if timed_out.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
            connection.close()
            sock.close()

    def _all_headers(self, message: Mapping[str, Any]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "User-Agent": f"woolly/{__version__}",
            **self._session,
            **self._headers,
        }
        params = message.get("params", {})
        if is_newest(params):  # the newest revision repeats in headers what stands in the message
            headers |= {VERSION: str(revision(params)), "Mcp-Method": message["method"]}
            if name := NAME_PARAMS.get(message["method"]):
                headers["Mcp-Name"] = _header(params[name])
        return headers


def _connect(host: str, port: int, deadline_s: float) -> socket.socket:
    """A connection to the first address of a host that answers."""
    failure: OSError = ConnectionError("it has no address")
    for family, kind, number, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, number)
        try:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(address)
            _wait(sock, deadline_s)
            sock.settimeout(max(0.001, deadline_s - time.monotonic()))
            return sock
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError) or isinstance(error, TimeoutError):
                raise
            failure = error
    raise failure


def _wait(sock: socket.socket, deadline_s: float) -> None:
    """Wait until a socket is connected."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while True:
        check()
        left = deadline_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if poll.poll(1000 * min(left, POLL_S)):
            break
    if number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))


def _header(value: str) -> str:
    plain = value.isascii() and value.isprintable() and value == value.strip()
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _body(answer: http.client.HTTPResponse) -> bytes:
    data = answer.read(LIMITS.mcp_message + 1)
    if len(data) > LIMITS.mcp_message:
        raise ValueError(f"sent a message of more than {LIMITS.mcp_message:,} bytes")
    return data


class _Events:
    """Server-sent events of one answer, over one connection or several; the last id, and the delay before the next."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s = 1.0
        self._received = 0

    def read(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        """The data of each event."""
        data = b""
        while line := answer.readline(LIMITS.mcp_message + 1):
            self._received += len(line)
            if max(len(line), len(data)) > LIMITS.mcp_message:
                raise ValueError(f"sent a message of more than {LIMITS.mcp_message:,} bytes")
            if self._received > LIMITS.mcp_flood:
                raise ValueError(f"sent more than {LIMITS.mcp_flood:,} bytes and no answer")
            name, _, value = line.strip().partition(b":")
            match name:
                case b"data":
                    data += value.strip()
                case b"id":
                    self.last_id = printable(value.strip())
                case b"retry" if value.strip().isdigit():
                    self.retry_s = max(0.1, min(60.0, int(value.strip()[:9]) / 1000))
                case b"" if data:
                    yield data
                    data = b""


def _result(answer: http.client.HTTPResponse, id_: int, events: _Events) -> Mapping[str, Any] | None:
    """The result in an answer; None where its events end without one."""
    if not 200 <= answer.status < 300:
        raise _refused(answer, id_)
    streamed = (answer.getheader("content-type") or "").startswith("text/event-stream")
    for data in events.read(answer) if streamed else [_body(answer)]:
        result = result_of(_json(data), id_)
        if result is not None:
            return result
    return None


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError(f"sent what is no JSON: {printable(data[:200], 60)}") from None


def _refused(answer: http.client.HTTPResponse, id_: int) -> Exception:
    """The error of a request without a result: from its message, otherwise from its status."""
    if 300 <= answer.status < 400:
        return ValueError("sends us to another address, which is not followed")
    try:
        result_of(_json(_body(answer)), id_)
    except RpcError as error:
        return error
    except ValueError:
        pass
    return ValueError(f"answered with the status {answer.status}")
