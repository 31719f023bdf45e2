"""Tools of MCP servers: what a request asks of them, and the events of an answer that uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from woolly.mcp import CallToolResult
from woolly.request.messages import Tool


@dataclass(frozen=True, slots=True)
class McpServerRef:
    """A server that a request names. only: its tools that may be used, all where it is None. needs_approval: whether
    the user has to approve a call of a tool."""

    label: str
    needs_approval: Callable[[str], bool]
    url: str = ""
    headers: Mapping[str, str] | None = None
    only: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that waited for the approval of the user, and has it now."""

    id: str
    label: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RemoteTools:
    """The MCP servers that a request may use, and the calls that its user has approved. listed: labels of the servers
    whose tools were listed in an earlier request."""

    servers: tuple[McpServerRef, ...]
    allowed: tuple[ApprovedCall, ...] = ()
    listed: frozenset[str] = frozenset()
    most: int = 2**31  # calls of an answer


# Events besides those of the model


@dataclass(frozen=True, slots=True)
class ToolsListed:
    """The tools of a server that the model is offered; where the server could not be asked, the reason."""

    label: str
    tools: tuple[Tool, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """A call that the user has to approve, by the id of the question. The answer ends after it."""

    id: str
    label: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call begins. approval: the id of the question that the user has answered."""

    label: str
    name: str
    arguments: str
    approval: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    """The result of the call that began last."""

    result: CallToolResult


RemoteEvent: TypeAlias = ToolsListed | ApprovalNeeded | ToolCallStarted | ToolCallDone
