"""The Model Context Protocol: what a host may use of this server, over any transport.

/mcp, WebSockets, the standard streams (`woolly mcp`) and the routes under /api/v1/mcp are four ways to the tables of
mcp_offers.py. The newest revision has no handshake: each request says in `_meta` by which revision it speaks, and each
result says that it is complete. Hosts of the revisions before it begin with `initialize`. Hosts of both kinds are
answered, and nothing is remembered between two messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from woolly.errors import NotFoundError, WoollyError, printable
from woolly.mcp.rpc import (
    HANDSHAKE_REVISIONS,
    INVALID_PARAMS,
    INVALID_REQUEST,
    META_PREFIX,
    METHOD_NOT_FOUND,
    NEWEST,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    RpcError,
    check_meta,
    error_response,
    is_newest,
    object_of,
    revision,
    text_of,
)
from woolly.server.dialects.base.fields import read_struct
from woolly.server.http.caller import Caller
from woolly.version import __version__

JSON = "application/json"
SERVER = {"name": "woolly-server", "version": __version__}
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
HANDSHAKE = frozenset({"initialize", "ping"})  # methods that the newest revision does not have
LASTING = {"ttlMs": 60_000, "cacheScope": "private"}  # in results that a host may keep for a while

Params = Mapping[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    arguments: type[msgspec.Struct]
    call: Callable[[Caller, Mapping[str, Any]], Awaitable[str]]

    @property
    def schema(self) -> dict[str, Any]:
        components = msgspec.json.schema(self.arguments)
        return {
            **components["$defs"].pop(self.arguments.__name__),
            **({"$defs": components["$defs"]} if components["$defs"] else {}),
        }


@dataclass(frozen=True, slots=True)
class Resource:
    uri: str
    name: str
    description: str
    read: Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """`text` has the arguments in braces; all of them must be given."""

    name: str
    description: str
    arguments: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Offers:
    """The tools, resources and prompts that a host may use."""

    tools: tuple[Tool, ...]
    resources: tuple[Resource, ...]
    prompts: tuple[Prompt, ...]


class Mcp:
    """MCP of one server. A name that does not exist raises NotFoundError, over JSON-RPC an RpcError."""

    def __init__(self, offers: Offers) -> None:
        self._offers = offers
        self._methods: Mapping[str, Callable[[Caller, Params], Awaitable[Result]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _always({}),
            "tools/list": _always({"tools": self.tools(), **LASTING}),
            "tools/call": self._tools_call,
            "resources/list": _always({"resources": self.resources(), **LASTING}),
            "resources/templates/list": _always({"resourceTemplates": [], **LASTING}),
            "resources/read": self._resources_read,
            "prompts/list": _always({"prompts": self.prompts(), **LASTING}),
            "prompts/get": self._prompts_get,
        }

    def tools(self) -> list[Result]:
        return [
            {"name": row.name, "description": row.description, "inputSchema": row.schema} for row in self._offers.tools
        ]

    def resources(self) -> list[Result]:
        return [
            {"uri": r.uri, "name": r.name, "description": r.description, "mimeType": JSON}
            for r in self._offers.resources
        ]

    def prompts(self) -> list[Result]:
        return [
            {
                "name": row.name,
                "description": row.description,
                "arguments": [{"name": name, "required": True} for name in row.arguments],
            }
            for row in self._offers.prompts
        ]

    async def call_tool(self, caller: Caller, name: str, arguments: Params) -> tuple[str, bool]:
        """The text of a tool, and whether it is an error, which the model that called the tool can read."""
        tool = next((row for row in self._offers.tools if row.name == name), None)
        if tool is None:
            known = ", ".join(row.name for row in self._offers.tools)
            raise NotFoundError(f"there is no tool '{printable(name)}'", suggestion=f"there are {known}")
        try:
            read_struct(tool.arguments, arguments)
            return await tool.call(caller, arguments), False
        except WoollyError as error:
            return str(error), True

    async def read_resource(self, uri: str) -> str:
        """A resource, as JSON."""
        resource = next((row for row in self._offers.resources if row.uri == uri), None)
        if resource is None:
            raise NotFoundError(f"there is no resource '{printable(uri)}'")
        return msgspec.json.encode(await resource.read()).decode()

    def fill_prompt(self, name: str, arguments: Params) -> str:
        """A prompt with its arguments in their places."""
        prompt = next((row for row in self._offers.prompts if row.name == name), None)
        if prompt is None:
            raise NotFoundError(f"there is no prompt '{printable(name)}'")
        for needed in prompt.arguments:
            if not isinstance(arguments.get(needed), str):
                raise NotFoundError(f"the prompt '{name}' needs the argument '{needed}', a text")
        return prompt.text.format_map({needed: arguments[needed] for needed in prompt.arguments})

    async def call(self, caller: Caller, method: str, params: Params) -> Result:
        """The result of a method; raises RpcError."""
        newest = is_newest(params)
        if newest:
            check_meta(params)
            if revision(params) != NEWEST:
                versions = {"supported": [NEWEST, *HANDSHAKE_REVISIONS], "requested": revision(params)}
                raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", versions)
        if method not in self._methods or (newest and method in HANDSHAKE):
            raise RpcError(METHOD_NOT_FOUND, f"there is no method '{printable(method)}'")
        try:
            result = await self._methods[method](caller, params)
        except WoollyError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None
        return {"resultType": "complete", **result} if newest else result

    async def reply(self, caller: Caller, message: object) -> Result | None:
        """The answer to one JSON-RPC message; None to a notification."""
        if not isinstance(message, Mapping):
            return error_response(None, RpcError(INVALID_REQUEST, "a message is one JSON object"))
        id_, method, params = message.get("id"), message.get("method"), message.get("params", {})
        if not isinstance(method, str) or not isinstance(params, Mapping) or not isinstance(id_, str | int | None):
            return error_response(
                None, RpcError(INVALID_REQUEST, "a message has a method, and its parameters are an object")
            )
        if id_ is None:
            return None
        try:
            return {"jsonrpc": "2.0", "id": id_, "result": await self.call(caller, method, params)}
        except RpcError as error:
            return error_response(id_, error)

    async def _initialize(self, _caller: Caller, params: Params) -> Result:
        asked = params.get("protocolVersion")
        version = asked if asked in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0]
        return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": SERVER}

    async def _discover(self, _caller: Caller, _params: Params) -> Result:
        about = {f"{META_PREFIX}serverInfo": SERVER}
        return {
            "supportedVersions": [NEWEST, *HANDSHAKE_REVISIONS],
            "capabilities": CAPABILITIES,
            "_meta": about,
            **LASTING,
        }

    async def _tools_call(self, caller: Caller, params: Params) -> Result:
        text, wrong = await self.call_tool(caller, text_of(params, "name"), object_of(params, "arguments"))
        return {"content": [{"type": "text", "text": text}], "isError": wrong}

    async def _resources_read(self, _caller: Caller, params: Params) -> Result:
        uri = text_of(params, "uri")
        try:
            text = await self.read_resource(uri)
        except NotFoundError as error:
            raise RpcError(
                INVALID_PARAMS if is_newest(params) else RESOURCE_NOT_FOUND, error.message, {"uri": uri}
            ) from None
        return {"contents": [{"uri": uri, "mimeType": JSON, "text": text}], "ttlMs": 0, "cacheScope": "private"}

    async def _prompts_get(self, _caller: Caller, params: Params) -> Result:
        text = self.fill_prompt(text_of(params, "name"), object_of(params, "arguments"))
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _always(result: Result) -> Callable[[Caller, Params], Awaitable[Result]]:
    async def method(_caller: Caller, _params: Params) -> Result:
        return result

    return method
