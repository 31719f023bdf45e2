"""The tools of several servers in one box, each under the name by which a model calls it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from woolly.errors import WoollyError
from woolly.mcp.client import Client, Result
from woolly.messages import Tool
from woolly.request import Call

ALL = "*"  # in `allow` of a server


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as a model knows it, and the server that has it under `name`."""

    tool: Tool
    client: Client
    name: str

    @property
    def allowed(self) -> bool:
        """Whether the settings allow it without a question."""
        return ALL in self.client.server.allow or self.name in self.client.server.allow

    def call(self, arguments: str) -> Result:
        """What it says; arguments that are no object, and a server that fails, are an error that a model can read."""
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            return Result("the arguments are not a JSON object", wrong=True)
        try:
            return self.client.call(self.name, given)
        except WoollyError as error:
            return Result(str(error), wrong=True)


class Toolbox:
    """The tools of these servers. `faults` has a sentence for each server that could not be asked, by its name.

    A name that two servers have is told apart by the name of the server.
    """

    def __init__(self, clients: Iterable[Client]) -> None:
        self.clients = tuple(clients)
        self.faults: dict[str, str] = {}
        found: list[Offered] = []
        for client in self.clients:
            try:
                found += [Offered(tool, client, tool.name) for tool in client.tools()]
            except WoollyError as error:
                self.faults[client.name] = str(error)
        often = Counter(one.name for one in found)
        self.offered: dict[str, Offered] = {}  # by the name that the model knows
        for one in found:
            name = f"{one.client.name}.{one.name}" if often[one.name] > 1 else one.name
            self.offered[name] = replace(one, tool=replace(one.tool, name=name))

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(one.tool for one in self.offered.values())

    def call(self, call: Call) -> Result:
        """What a call says that a model made."""
        offered = self.offered.get(call.name)
        return offered.call(call.arguments) if offered else Result(f"there is no tool '{call.name}'", wrong=True)

    def close(self) -> None:
        for client in self.clients:
            client.close()
