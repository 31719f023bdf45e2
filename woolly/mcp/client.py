"""One server of the Model Context Protocol, as its client sees it.

It is spoken to when it is first needed, and anew after anything went wrong: what a server that failed may still send
belongs to nothing. Most servers begin with a handshake; one that refuses it is asked by the newest revision.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from threading import Lock
from typing import Any, Protocol

import msgspec

from woolly import __version__
from woolly.errors import DownloadError, RequestError, printable
from woolly.limits import LIMITS
from woolly.mcp.process import Process
from woolly.mcp.rpc import BEFORE, META, NEWEST, RpcError, notification, request
from woolly.mcp.web import Web
from woolly.messages import Tool, read_tools
from woolly.settings import McpServer

ABOUT = {"name": "woolly", "version": __version__}


class Transport(Protocol):
    """What carries messages. Whatever it raises, nothing more can be asked of it."""

    def ask(self, message: Mapping[str, Any], deadline_s: float) -> Mapping[str, Any]: ...
    def tell(self, message: Mapping[str, Any], deadline_s: float) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool said, as text that a model can read; wrong: it is an error."""

    text: str
    wrong: bool = False


class Client:
    """For any thread; calls come one after another. Raises DownloadError, in one sentence that names the server."""

    def __init__(self, name: str, server: McpServer, timeout_s: float) -> None:
        self.name = name
        self.server = server
        self._timeout_s = timeout_s
        self._one = Lock()
        self._carrier: Transport | None = None
        self._meta: dict[str, Any] = {}  # what each request of the newest revision says
        self._tools: tuple[Tool, ...] | None = None
        self._last = 0  # id

    def tools(self) -> tuple[Tool, ...]:
        """Its tools, asked for once. One that no chat could offer is left out."""
        with self._one:
            if self._tools is None:
                self._tools = self._listed()
            return self._tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """What a tool says."""
        with self._one:
            result = self._ask("tools/call", {"name": name, "arguments": dict(arguments)})
        text = _text(result)
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > LIMITS.mcp_result:
            return Result(f"the result has {size:,} bytes; at most {LIMITS.mcp_result:,} are read", wrong=True)
        return Result(text, result.get("isError") is True)

    def close(self) -> None:
        with self._one:
            self._let_go()

    def _listed(self) -> tuple[Tool, ...]:
        found: list[Tool] = []
        cursor: dict[str, Any] = {}
        for _ in range(LIMITS.mcp_pages):
            page = self._ask("tools/list", cursor)
            rows = page.get("tools")
            if not isinstance(rows, list):
                raise self._fault("lists no tools")
            found += [tool for row in rows[: LIMITS.mcp_tools] for tool in _tool(row)]
            if not isinstance(page.get("nextCursor"), str) or len(found) >= LIMITS.mcp_tools:
                break
            cursor = {"cursor": page["nextCursor"]}
        return tuple({tool.name: tool for tool in found}.values())[: LIMITS.mcp_tools]

    def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a request, by a connection that is there or is made now."""
        deadline = time.monotonic() + self._timeout_s
        try:
            if self._carrier is None:
                self._connect(deadline)
            return self._request(method, {**params, **self._meta}, deadline)
        except RpcError as error:
            raise self._fault(f"says: {printable(error.message, 200)}") from None
        except TimeoutError:
            self._let_go()
            raise self._fault(f"has not answered within {self._timeout_s:g} s") from None
        except (OSError, HTTPException) as error:
            self._let_go()
            raise self._fault(f"cannot be reached: {printable(error, 200)}") from None
        except ValueError as error:
            self._let_go()
            raise self._fault(str(error)) from None
        except BaseException:  # Ctrl-C
            self._let_go()
            raise

    def _request(self, method: str, params: Mapping[str, Any], deadline: float) -> Mapping[str, Any]:
        assert self._carrier is not None
        self._last += 1
        return self._carrier.ask(request(self._last, method, params), deadline)

    def _connect(self, deadline: float) -> None:
        server = self.server
        self._carrier = Process(server.command, server.env) if server.command else Web(server.url, server.headers)
        self._meta = {}
        hello = {"protocolVersion": BEFORE[0], "capabilities": {}, "clientInfo": ABOUT}
        try:
            version = self._request("initialize", hello, deadline).get("protocolVersion")
        except RpcError:
            self._meta = {
                "_meta": {
                    f"{META}protocolVersion": NEWEST,
                    f"{META}clientCapabilities": {},
                    f"{META}clientInfo": ABOUT,
                }
            }
            self._request("server/discover", self._meta, deadline)
            return
        if version not in BEFORE and version != "2024-11-05":
            raise ValueError(f"speaks the revision '{printable(version)}', which is not known here")
        self._carrier.tell(notification("notifications/initialized"), deadline)

    def _let_go(self) -> None:
        if self._carrier is not None:
            self._carrier.close()
        self._carrier = None

    def _fault(self, what: str) -> DownloadError:
        return DownloadError(f"the MCP server '{printable(self.name)}' {what}", code="mcp_protocol_error")


def _tool(row: object) -> tuple[Tool, ...]:
    """A tool as a chat offers it; none where its name or its schema could not be told to a model."""
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
    """What a model can read of a result: its texts; of all else, what it is."""
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
