"""MCP over HTTP: messages at /mcp, and the same tools, resources and prompts as plain routes under /api/v1/mcp."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from woolly.errors import DownloadError, NotFoundError, RequestError, WoollyError
from woolly.mcp.rpc import (
    HANDSHAKE_REVISIONS,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NAME_PARAMS,
    NEWEST,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    RpcError,
    check_meta,
    error_response,
    is_newest,
    revision,
)
from woolly.server.dialects.base.shapes import Shape
from woolly.server.generate.mcp_tools import Remotes
from woolly.server.http.reply import Reply
from woolly.server.mcp.mcp import Mcp
from woolly.server.routes import Call, Dialect, Query

PATH = "/mcp"
# The statuses of a method's errors; others have 200, as results do.
STATUS = {METHOD_NOT_FOUND: 404, PARSE_ERROR: 400, INVALID_REQUEST: 400, UNSUPPORTED_VERSION: 400}

Anything = Annotated[dict[str, Any], Meta(extra_json_schema={"type": "object"})]


class RpcBody(Struct, kw_only=True):
    jsonrpc: Literal["2.0"]
    method: str
    id: str | int | None = None
    params: dict[str, Any] = {}


class RpcFault(Shape, kw_only=True):
    code: int
    message: str
    data: Any | UnsetType = UNSET


class RpcAnswer(Shape, kw_only=True):
    jsonrpc: Literal["2.0"] = "2.0"
    id: str | int | None
    result: Any | UnsetType = UNSET
    error: RpcFault | UnsetType = UNSET


class ArgumentsBody(Struct):
    arguments: dict[str, Any] = {}


class ToolRecord(Shape):
    name: str
    description: str
    input_schema: Anything


class ServedTool(Shape, kw_only=True):
    name: str
    description: str
    input_schema: Anything
    allowed: Annotated[bool, Meta(description="the settings let it be called without asking the user")]


class ServerRecord(Shape, kw_only=True):
    name: str
    tools: list[ServedTool]
    error: Annotated[str | None, Meta(description="why it could not be asked")] = None


class ResourceRecord(Shape):
    uri: str
    name: str
    description: str
    mime_type: str


class PromptArgument(Shape):
    name: str
    required: bool


class PromptRecord(Shape):
    name: str
    description: str
    arguments: list[PromptArgument]


class TextContent(Shape, kw_only=True):
    type: Literal["text"] = "text"
    text: str


class ToolResult(Shape, kw_only=True):
    content: list[TextContent]
    is_error: bool


class ToolAnswer(Shape, kw_only=True):
    success: bool
    result: ToolResult | None
    error: str | None


class ResourceText(Shape, kw_only=True):
    type: Literal["text"] = "text"
    uri: str
    text: str


class ResourceContents(Shape):
    contents: list[ResourceText]


class PromptMessage(Shape):
    role: str
    content: str


class PromptMessages(Shape):
    messages: list[PromptMessage]


def error(problem: WoollyError, _id: str) -> RpcAnswer:
    """An error before there was a message to answer."""
    is_json = problem.code != "json_parse_error" or "expected" in problem.facts
    code = INVALID_REQUEST if is_json else PARSE_ERROR
    return RpcAnswer(id=None, error=RpcFault(code=code, message=str(problem)))


async def message(mcp: Mcp, call: Call) -> Reply[RpcAnswer | bytes]:
    """One JSON-RPC message of MCP, of the newest revision and of those before it."""
    body: RpcBody = call.body
    try:
        _check(call.headers, body)
    except RpcError as wrong:
        return Reply(_answer(error_response(body.id, wrong)), 400)
    reply = await mcp.reply(call.caller, {"id": body.id, "method": body.method, "params": body.params})
    if reply is None:
        return Reply(b"", 202)
    return Reply(_answer(reply), STATUS.get(reply["error"]["code"], 200) if "error" in reply else 200)


def _answer(reply: Mapping[str, Any]) -> RpcAnswer:
    fault = reply.get("error")
    return RpcAnswer(id=reply["id"], result=reply.get("result", UNSET), error=RpcFault(**fault) if fault else UNSET)


def _check(headers: Mapping[str, str], body: RpcBody) -> None:
    """Refuse a message whose headers contradict it, so that no proxy that reads the headers alone is misled, and one
    that lacks what its revision needs. Raises RpcError."""
    version = headers.get("mcp-protocol-version")
    if not is_newest(body.params):
        if version == NEWEST and body.id is not None:
            check_meta(body.params)
        if version is not None and version not in (NEWEST, *HANDSHAKE_REVISIONS):
            raise _mismatch(f"MCP-Protocol-Version is {version[:40]}")
        return
    if version != revision(body.params):
        raise _mismatch("MCP-Protocol-Version")
    if headers.get("mcp-method") != body.method:
        raise _mismatch("Mcp-Method")
    name = NAME_PARAMS.get(body.method)
    if name is not None and _decoded(headers.get("mcp-name", "")) != body.params.get(name):
        raise _mismatch("Mcp-Name")
    check_meta(body.params)


def _mismatch(what: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, f"Header mismatch: {what}")


def _decoded(value: str) -> str:
    """A header's value; one with other characters than ASCII comes as base64."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return value


async def tools(mcp: Mcp, _call: Call) -> list[ToolRecord]:
    """The tools that MCP offers."""
    return [
        ToolRecord(name=t["name"], description=t["description"], input_schema=t["inputSchema"]) for t in mcp.tools()
    ]


async def call_tool(mcp: Mcp, call: Call) -> ToolAnswer:
    """Call a tool."""
    body: ArgumentsBody = call.body
    text, wrong = await mcp.call_tool(call.caller, call.path["name"], body.arguments)
    if wrong:
        return ToolAnswer(success=False, result=None, error=text)
    return ToolAnswer(success=True, result=ToolResult(content=[TextContent(text=text)], is_error=False), error=None)


async def servers(remotes: Remotes, call: Call) -> list[ServerRecord]:
    """The MCP servers of the settings that clients may use, each with its tools."""
    return [
        ServerRecord(
            name=name,
            tools=[
                ServedTool(
                    name=one.name,
                    description=one.tool.description,
                    input_schema=dict(one.tool.parameters),
                    allowed=one.allowed,
                )
                for one in box.offered.values()
            ],
            error=box.faults.get(name),
        )
        for name, box in (await remotes.boxes(call.caller)).items()
    ]


async def call_server(remotes: Remotes, call: Call) -> ToolAnswer:
    """Call a tool of an MCP server of the settings. Whoever asks has asked the user."""
    body: ArgumentsBody = call.body
    try:
        result = await remotes.call(call.caller, call.path["server"], call.path["name"], body.arguments)
    except DownloadError as error:
        return ToolAnswer(success=False, result=None, error=str(error))
    if result.wrong:
        return ToolAnswer(success=False, result=None, error=result.text)
    tool_result = ToolResult(content=[TextContent(text=result.text)], is_error=False)
    return ToolAnswer(success=True, result=tool_result, error=None)


async def resources(mcp: Mcp, _call: Call) -> list[ResourceRecord]:
    """The resources that MCP offers."""
    return [
        ResourceRecord(uri=r["uri"], name=r["name"], description=r["description"], mime_type=r["mimeType"])
        for r in mcp.resources()
    ]


async def resource(mcp: Mcp, call: Call) -> ResourceContents:
    """One resource, by what stands behind `model://`."""
    uri = f"model://{call.path['path'].removeprefix('model://')}"
    try:
        text = await mcp.read_resource(uri)
    except NotFoundError as error:
        raise RequestError(error.message, param="path") from None
    return ResourceContents(contents=[ResourceText(uri=uri, text=text)])


async def prompts(mcp: Mcp, _call: Call) -> list[PromptRecord]:
    """The prompts that MCP offers."""
    return [
        PromptRecord(
            name=p["name"], description=p["description"], arguments=[PromptArgument(**a) for a in p["arguments"]]
        )
        for p in mcp.prompts()
    ]


async def prompt(mcp: Mcp, call: Call) -> PromptMessages:
    """A prompt with its arguments in their places."""
    body: ArgumentsBody = call.body
    try:
        text = mcp.fill_prompt(call.path["name"], body.arguments)
    except NotFoundError as error:
        raise RequestError(error.message, param="arguments") from None
    return PromptMessages(messages=[PromptMessage(role="user", content=text)])


DIALECT = Dialect(
    name="mcp",
    routes=(Query("POST", PATH, message, "MCP", RpcBody, failed=error, status=(202,), errors=(404,)),),
    error=error,
    prefixes=(PATH,),
)
ROUTES = (
    Query("GET", "/api/v1/mcp/tools", tools, "MCP"),
    Query("POST", "/api/v1/mcp/tools/{name}", call_tool, "MCP", ArgumentsBody, access="key", errors=(404,)),
    Query("GET", "/api/v1/mcp/servers", servers, "MCP", access="key"),
    Query(
        "POST",
        "/api/v1/mcp/servers/{server}/tools/{name}",
        call_server,
        "MCP",
        ArgumentsBody,
        access="key",
        errors=(404,),
    ),
    Query("GET", "/api/v1/mcp/resources", resources, "MCP"),
    Query("GET", "/api/v1/mcp/resources/{path:path}", resource, "MCP"),
    Query("GET", "/api/v1/mcp/prompts", prompts, "MCP"),
    Query("POST", "/api/v1/mcp/prompts/{name}", prompt, "MCP", ArgumentsBody),
)
