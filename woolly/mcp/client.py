"""A client of one server of the Model Context Protocol.

It connects when the server is first needed, and again after any failure: a message that comes late would belong to no
request. Most servers begin with a handshake; one that refuses it is asked by the newest revision, which has none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import msgspec

from woolly.config.rows import McpServer
from woolly.errors import DownloadError, RequestError, printable
from woolly.io.cancellation import check, held
from woolly.limits import LIMITS
from woolly.mcp.http_transport import HttpTransport
from woolly.mcp.rpc import HANDSHAKE_REVISIONS, META_PREFIX, NEWEST, RpcError, notification, request
from woolly.mcp.stdio_transport import StdioTransport
from woolly.request.messages import Tool, read_tools
from woolly.version import __version__

CLIENT_INFO = {"name": "woolly", "version": __version__}


class Transport(Protocol):
    """Carries messages to a server and back. After raising anything but RpcError it is closed and not used again."""

    def request(self, message: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]: ...
    def notify(self, message: Mapping[str, Any], deadline_s: float) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CallToolResult:
    """The result of a tool as text that a model can read. wrong: the text is an error."""

    text: str
    wrong: bool = False


class Client:
    """Any thread may use it; its calls run one by one. Raises DownloadError: one sentence with the server's name.

    A call whose caller has gone (io/cancellation.py) ends at once, and its connection with it.
    """

    def __init__(self, name: str, server: McpServer, timeout_s: float) -> None:
        self.name = name
        self.server = server
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._transport: Transport | None = None
        self._meta: dict[str, Any] = {}  # `_meta` of each request, where the server speaks the newest revision
        self._tools: tuple[Tool, ...] | None = None
        self._last_id = 0

    def tools(self) -> tuple[Tool, ...]:
        """The server's tools, fetched once. A tool that no chat could offer is left out."""
        with held(self._lock):
            if self._tools is None:
                self._tools = self._list_tools()
            return self._tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool and return its result."""
        with held(self._lock):
            result = self._request("tools/call", {"name": name, "arguments": dict(arguments)})
        text = _text(result)
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > LIMITS.mcp_result:
            return CallToolResult(f"the result has {size:,} bytes; at most {LIMITS.mcp_result:,} are read", wrong=True)
        return CallToolResult(text, result.get("isError") is True)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _list_tools(self) -> tuple[Tool, ...]:
        tools: list[Tool] = []
        cursor: dict[str, Any] = {}
        for _ in range(LIMITS.mcp_pages):
            check()
            page = self._request("tools/list", cursor)
            rows = page.get("tools")
            if not isinstance(rows, list):
                raise self._error("lists no tools")
            tools += [tool for row in rows[: LIMITS.mcp_tools] for tool in _tool(row)]
            if not isinstance(page.get("nextCursor"), str) or len(tools) >= LIMITS.mcp_tools:
                break
            cursor = {"cursor": page["nextCursor"]}
        return tuple({tool.name: tool for tool in tools}.values())[: LIMITS.mcp_tools]

    def _request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a request; connects first where there is no connection."""
        deadline = time.monotonic() + self._timeout_s
        try:
            if self._transport is None:
                self._connect(deadline)
            return self._send(method, {**params, **self._meta}, deadline)
        except RpcError as error:
            raise self._error(f"says: {printable(error.message, 200)}") from None
        except TimeoutError:
            self._disconnect()
            raise self._error(f"has not answered within {self._timeout_s:g} s") from None
        except OSError as error:
            self._disconnect()
            raise self._error(f"cannot be reached: {printable(error, 200)}") from None
        except ValueError as error:
            self._disconnect()
            raise self._error(str(error)) from None
        except BaseException:  # Ctrl-C, or a caller that has gone
            self._disconnect()
            raise

    def _send(self, method: str, params: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
        assert self._transport is not None
        self._last_id += 1
        return self._transport.request(request(self._last_id, method, params), deadline)

    def _connect(self, deadline: float) -> None:
        server = self.server
        self._transport = (
            StdioTransport(server.command, server.env) if server.command else HttpTransport(server.url, server.headers)
        )
        self._meta = {}
        hello = {"protocolVersion": HANDSHAKE_REVISIONS[0], "capabilities": {}, "clientInfo": CLIENT_INFO}
        try:
            version = self._send("initialize", hello, deadline).get("protocolVersion")
        except RpcError:
            self._meta = {
                "_meta": {
                    f"{META_PREFIX}protocolVersion": NEWEST,
                    f"{META_PREFIX}clientCapabilities": {},
                    f"{META_PREFIX}clientInfo": CLIENT_INFO,
                }
            }
            self._send("server/discover", self._meta, deadline)
            return
        if version not in HANDSHAKE_REVISIONS and version != "2024-11-05":
            raise ValueError(f"speaks the revision '{printable(version)}', which is not known here")
        self._transport.notify(notification("notifications/initialized"), deadline)

    def _disconnect(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    def _error(self, what: str) -> DownloadError:
        return DownloadError(f"the MCP server '{printable(self.name)}' {what}", code="mcp_protocol_error")


def _tool(row: object) -> tuple[Tool, ...]:
    """A tool as a chat offers it; none where a model could not be given its name or its schema."""
    if not isinstance(row, Mapping):
        return ()
    schema, description = row.get("inputSchema"), row.get("description")
    if len(msgspec.json.encode(schema)) > LIMITS.format_bytes:
        return ()
    try:
        about = description[: LIMITS.mcp_description] if isinstance(description, str) else ""
        return read_tools([{"name": row.get("name"), "description": about, "parameters": schema}])
    except RequestError:
        return ()


def _text(result: Mapping[str, Any]) -> str:
    """What a model can read of a result: its texts, and for every other part a note of its type."""
    rows = result.get("content")
    parts = [_part(row) for row in rows] if isinstance(rows, list) else []
    if not any(parts) and result.get("structuredContent") is not None:
        return msgspec.json.encode(result["structuredContent"]).decode()
    return "\n".join(part for part in parts if part)


def _part(row: object) -> str:
    if not isinstance(row, Mapping):
        return ""
    if isinstance(row.get("text"), str):
        return str(row["text"])
    inner = row.get("resource")
    if isinstance(inner, Mapping) and isinstance(inner.get("text"), str):
        return str(inner["text"])
    return f"[{printable(row.get('type'), 40)}, which is no text]"
