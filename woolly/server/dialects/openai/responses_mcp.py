"""MCP servers in OpenAI's Responses: what a request asks of them, and the items and events that show it.

Keys that a request sends for a server (`headers`, `authorization`) go to that server alone: they are neither kept nor
repeated in an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from woolly.errors import RequestError, UnsupportedError, printable
from woolly.limits import LIMITS
from woolly.mcp import CallToolResult
from woolly.server.dialects.base.remote_tools import (
    ApprovalNeeded,
    ApprovedCall,
    McpServerRef,
    RemoteEvent,
    RemoteTools,
    ToolCallDone,
    ToolCallStarted,
    ToolsListed,
)
from woolly.server.dialects.openai.responses_shapes import (
    ItemAdded,
    ItemDone,
    ListedTool,
    McpArgumentsDelta,
    McpArgumentsDone,
    McpCalled,
    McpCallFailed,
    McpCalling,
    McpCallItem,
    McpListed,
    McpListing,
    McpNotListed,
    McpQuestionItem,
    McpToolsItem,
    ResponseEvents,
)
from woolly.server.generate.mcp_tools import REFUSED

SECRET = ("headers", "authorization")
HEADERS = 32  # that a request may send for a server
OURS = frozenset(  # headers that say to whom a message goes, and where it ends
    (
        *("connection", "content-encoding", "content-length", "expect", "forwarded", "host", "keep-alive"),
        *("proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")


def read_remote(tools: Iterable[Mapping[str, Any]], items: list[Any], most: int | None) -> RemoteTools | None:
    """What the tools of the type `mcp` and the items of a request ask for."""
    servers = tuple(_asked(tool, f"tools[{index}]") for index, tool in enumerate(tools) if tool.get("type") == "mcp")
    if not servers:
        return None
    if len(servers) > LIMITS.mcp_servers:
        raise RequestError(
            f"tools has {len(servers):,} MCP servers; at most {LIMITS.mcp_servers} are asked", param="tools"
        )
    labels = [asked.label for asked in servers]
    if len(set(labels)) < len(labels):
        raise RequestError("two tools have the same server_label", param="tools")
    listed = {str(item.get("server_label")) for item in items if _kind(item) == "mcp_list_tools"}
    return RemoteTools(servers, tuple(_wishes(items)), frozenset(listed), most or 2**31)


def without_secrets(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as an answer may repeat it."""
    return {name: value for name, value in tool.items() if name not in SECRET}


def called(item: Mapping[str, Any], id_: str, output: object) -> list[dict[str, Any]]:
    """The messages of a call and of its result."""
    function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
    call = {"id": id_, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id_, "content": output if isinstance(output, str) else str(output)},
    ]


def refused_calls(item: Mapping[str, Any], items: list[Any]) -> list[dict[str, Any]]:
    """The messages of an item about MCP: only a call that the user refuses is told to the model."""
    if _kind(item) != "mcp_approval_response" or item.get("approve") is True:
        return []
    return called(_question(item, items), str(item.get("approval_request_id")), REFUSED.text)


def _kind(item: object) -> object:
    return item.get("type") if isinstance(item, Mapping) else None


def _question(item: Mapping[str, Any], items: list[Any]) -> Mapping[str, Any]:
    id_ = item.get("approval_request_id")
    asked = (one for one in items if _kind(one) == "mcp_approval_request" and one.get("id") == id_)
    question: Mapping[str, Any] | None = next(asked, None)
    if question is None:
        raise RequestError(f"there is no mcp_approval_request '{printable(id_)}'", param="input")
    return question


def _wishes(items: list[Any]) -> Iterator[ApprovedCall]:
    """Calls that the user allows, and that were not made yet; each once."""
    done = {str(item.get("approval_request_id")) for item in items if _kind(item) == "mcp_call"}
    for item in items:
        if _kind(item) != "mcp_approval_response" or item.get("approve") is not True:
            continue
        id_ = str(item.get("approval_request_id"))
        if id_ not in done:
            done.add(id_)
            asked = _question(item, items)
            yield ApprovedCall(id_, *(str(asked.get(name)) for name in ("server_label", "name", "arguments")))


def _asked(tool: Mapping[str, Any], place: str) -> McpServerRef:
    label, url = tool.get("server_label"), tool.get("server_url") or ""
    if not isinstance(label, str) or not 1 <= len(label) <= 64 or not label.isprintable():
        raise RequestError(f"{place}.server_label must be a short text", param=f"{place}.server_label")
    if tool.get("connector_id") is not None:
        raise UnsupportedError("connectors are not supported; name a server_url", param=f"{place}.connector_id")
    if not isinstance(url, str):
        raise RequestError(f"{place}.server_url must be a text", param=f"{place}.server_url")
    headers: dict[str, str] = {}
    sent_headers = tool.get("headers") or {}
    if isinstance(sent_headers, Mapping):
        headers |= sent_headers
    if tool.get("authorization") is not None:
        headers["Authorization"] = f"Bearer {tool['authorization']}"
    texts = all(isinstance(word, str) and word.isprintable() for pair in headers.items() for word in pair)
    if not texts or not isinstance(sent_headers, Mapping) or len(headers) > HEADERS:
        raise RequestError(f"{place}.headers must be an object of at most {HEADERS} texts", param=f"{place}.headers")
    for name in headers:
        if not _TOKEN.fullmatch(name) or name.lower() in OURS:
            raise RequestError(f"{place}.headers cannot have '{printable(name)}'", param=f"{place}.headers")
    only = _names(tool.get("allowed_tools"), f"{place}.allowed_tools")
    return McpServerRef(label, _asks(tool.get("require_approval"), place), url, headers, only)


def _names(value: object, place: str) -> frozenset[str] | None:
    """Names of tools: a list, or an object that has one; None where it says nothing about names."""
    names = value.get("tool_names") if isinstance(value, Mapping) else value
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequestError(f"{place} must be a list of names of tools", param=place)
    return frozenset(names)


def _asks(rule: object, place: str) -> Callable[[str], bool]:
    """A function that tells whether a call of a tool needs approval; without a rule, every call does."""
    where = f"{place}.require_approval"
    if rule in (None, "always"):
        return lambda _name: True
    if rule == "never":
        return lambda _name: False
    if not isinstance(rule, Mapping):
        raise RequestError(f"{where} is '{printable(rule)}'; expected always, never or an object", param=where)
    never = _names(rule.get("never"), where) or frozenset()
    return lambda name: name not in never


# What is answered


class Teller:
    """Makes the events of a stream that are about MCP. ids: gives the id of an item with a prefix."""

    def __init__(self, ids: Callable[[str], str], number: Iterator[int]) -> None:
        self._ids, self._number = ids, number
        self._call: tuple[ToolCallStarted, str] | None = None  # the call that is being made, and its item's id

    def events(self, event: RemoteEvent, index: int) -> Iterator[ResponseEvents]:
        match event:
            case ToolsListed():
                yield from self._listing(event, index)
            case ApprovalNeeded(id_, label, name, arguments):
                item = McpQuestionItem(id=id_, server_label=label, name=name, arguments=arguments)
                yield ItemAdded(output_index=index, item=item, sequence_number=next(self._number))
                yield ItemDone(output_index=index, item=item, sequence_number=next(self._number))
            case ToolCallStarted():
                yield from self._calling(event, index)
            case ToolCallDone(result):
                assert self._call is not None
                call = call_item(*self._call, result)
                place = self._place(call.id, index)
                yield (McpCallFailed if result.wrong else McpCalled)(**place, sequence_number=next(self._number))
                yield ItemDone(output_index=index, item=call, sequence_number=next(self._number))

    def _listing(self, event: ToolsListed, index: int) -> Iterator[ResponseEvents]:
        empty = McpToolsItem(id=self._ids("mcpl"), server_label=event.label, tools=[])
        place = self._place(empty.id, index)
        yield ItemAdded(output_index=index, item=empty, sequence_number=next(self._number))
        yield McpListing(**place, sequence_number=next(self._number))
        yield (McpNotListed if event.error else McpListed)(**place, sequence_number=next(self._number))
        rows = [
            ListedTool(name=tool.name, description=tool.description, input_schema=dict(tool.parameters))
            for tool in event.tools
        ]
        item = msgspec.structs.replace(empty, tools=rows, error=event.error or None)
        yield ItemDone(output_index=index, item=item, sequence_number=next(self._number))

    def _calling(self, event: ToolCallStarted, index: int) -> Iterator[ResponseEvents]:
        self._call = event, self._ids("mcp")
        item = call_item(*self._call)
        place = self._place(item.id, index)
        begun = msgspec.structs.replace(item, arguments="")
        yield ItemAdded(output_index=index, item=begun, sequence_number=next(self._number))
        yield McpArgumentsDelta(**place, delta=event.arguments, sequence_number=next(self._number))
        yield McpArgumentsDone(**place, arguments=event.arguments, sequence_number=next(self._number))
        yield McpCalling(**place, sequence_number=next(self._number))

    @staticmethod
    def _place(id_: str, index: int) -> dict[str, Any]:
        return {"item_id": id_, "output_index": index}


def call_item(event: ToolCallStarted, id_: str, result: CallToolResult | None = None) -> McpCallItem:
    """The item of a call; with a result, of one that has ended."""
    status = "in_progress" if result is None else "failed" if result.wrong else "completed"
    return McpCallItem(
        id=id_,
        server_label=event.label,
        name=event.name,
        arguments=event.arguments,
        output=None if result is None or result.wrong else result.text,
        error=result.text if result is not None and result.wrong else None,
        approval_request_id=event.approval or None,
        status=status,  # type: ignore[arg-type]
    )
