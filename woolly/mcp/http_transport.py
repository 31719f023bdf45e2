"""The HTTP transport: a server behind a URL, where each message is a POST, answered with JSON or with events.

Each message has a connection of its own, and a deadline, so that slow bytes cannot prolong the wait. A redirect is not
followed: the settings allow one address and no other. A server may end its events early, and send the rest when asked.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from woolly.errors import printable
from woolly.io.cancellation import pause
from woolly.io.http import AGENT, Response, Terms, ask
from woolly.limits import LIMITS
from woolly.mcp.rpc import NAME_PARAMS, RpcError, is_newest, result_of, revision

SESSION, VERSION = "Mcp-Session-Id", "MCP-Protocol-Version"


class HttpTransport:
    """Raises what `StdioTransport` raises."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._session: dict[str, str] = {}  # headers of the session, from the handshake

    def request(self, message: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]:
        """Send a request, and wait for its result."""
        headers, events = self._all_headers(message), _Events()
        with self._ask("POST", msgspec.json.encode(message), headers, deadline_s) as answer:
            if session := answer.headers.get(SESSION):
                self._session[SESSION] = session
            result = _result(answer, message["id"], events)
        while result is None and events.last_id:
            pause(min(events.retry_s, max(0.0, deadline_s - time.monotonic())))
            headers = self._all_headers(message) | {"Last-Event-ID": events.last_id}
            with self._ask("GET", None, headers, deadline_s) as answer:
                result = _result(answer, message["id"], events)
        if result is None:
            raise ValueError("ended its answer without a result")
        if message["method"] == "initialize":
            self._session[VERSION] = str(result.get("protocolVersion"))
        return result

    def notify(self, message: Mapping[str, Any], deadline_s: float) -> None:
        """Send a notification."""
        with self._ask("POST", msgspec.json.encode(message), self._all_headers(message), deadline_s):
            pass

    def close(self) -> None:
        """Does nothing: no connection is open between two messages."""

    def _ask(self, method: str, body: bytes | None, headers: Mapping[str, str], deadline_s: float) -> Response:
        terms = Terms(connect_s=math.inf, wait_s=None, deadline_s=deadline_s)
        return ask(method, self._url, body, headers, terms=terms)

    def _all_headers(self, message: Mapping[str, Any]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "User-Agent": AGENT,
            **self._session,
            **self._headers,
        }
        params = message.get("params", {})
        if is_newest(params):  # the newest revision repeats in headers what stands in the message
            headers |= {VERSION: str(revision(params)), "Mcp-Method": message["method"]}
            if name := NAME_PARAMS.get(message["method"]):
                headers["Mcp-Name"] = _header(params[name])
        return headers


def _header(value: str) -> str:
    plain = value.isascii() and value.isprintable() and value == value.strip()
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _body(answer: Response) -> bytes:
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

    def read(self, answer: Response) -> Iterator[bytes]:
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


def _result(answer: Response, id_: int, events: _Events) -> Mapping[str, Any] | None:
    """The result in an answer; None where its events end without one."""
    if not 200 <= answer.status < 300:
        raise _refused(answer, id_)
    streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
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


def _refused(answer: Response, id_: int) -> Exception:
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
