"""The tools of several servers together, each under the name by which a model calls it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from woolly.errors import WoollyError
from woolly.io.cancellation import check
from woolly.mcp.client import CallToolResult, Client
from woolly.request import Call
from woolly.request.messages import Tool

ALL = "*"  # in the setting `allow` of a server: every tool


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as a model knows it, and the server that has it under `name`."""

    tool: Tool
    client: Client
    name: str

    @property
    def allowed(self) -> bool:
        """Whether the settings allow it without a question."""
        return ALL in self.client.server.allow or self.name in self.client.server.allow

    def call(self, arguments: str) -> CallToolResult:
        """Call the tool. Wrong arguments and failures of the server become a result that says so."""
        try:
            fields = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            return CallToolResult("the arguments are not a JSON object", wrong=True)
        try:
            return self.client.call(self.name, fields)
        except WoollyError as error:
            return CallToolResult(str(error), wrong=True)


class Toolbox:
    """The tools of these servers. `faults` has a sentence for each server that could not be asked, by its name.

    A tool name that two servers have gets the server's name in front.
    """

    def __init__(self, clients: Iterable[Client]) -> None:
        self.clients = tuple(clients)
        self.faults: dict[str, str] = {}
        tools: list[OfferedTool] = []
        for client in self.clients:
            check()
            try:
                tools += [OfferedTool(tool, client, tool.name) for tool in client.tools()]
            except WoollyError as error:
                self.faults[client.name] = str(error)
        often = Counter(one.name for one in tools)
        self.offered: dict[str, OfferedTool] = {}  # by the name that the model knows
        for one in tools:
            name = f"{one.client.name}.{one.name}" if often[one.name] > 1 else one.name
            self.offered[name] = replace(one, tool=replace(one.tool, name=name))

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(one.tool for one in self.offered.values())

    def call(self, call: Call) -> CallToolResult:
        """The result of a call that a model made."""
        offered = self.offered.get(call.name)
        return (
            offered.call(call.arguments) if offered else CallToolResult(f"there is no tool '{call.name}'", wrong=True)
        )

    def close(self) -> None:
        for client in self.clients:
            client.close()
