"""The tools of several servers, as a model is offered them."""

from __future__ import annotations

from typing import Any

import pytest

from woolly.config.rows import KINDS, McpServer
from woolly.errors import DownloadError, RequestError
from woolly.mcp import CallToolResult, Client, Toolbox
from woolly.request import Call
from woolly.request.messages import Tool


class Known(Client):
    """A client whose server needs no asking."""

    def __init__(self, name: str, *tools: str, allow: tuple[str, ...] = (), broken: bool = False) -> None:
        super().__init__(name, McpServer(("never-run",), allow=allow), 1.0)
        self._known, self._broken = tuple(Tool(tool) for tool in tools), broken

    def tools(self) -> tuple[Tool, ...]:
        if self._broken:
            raise DownloadError(f"the MCP server '{self.name}' has ended")
        return self._known

    def call(self, name: str, arguments: Any) -> CallToolResult:
        if name == "breaks":
            raise DownloadError("the MCP server has ended")
        return CallToolResult(f"{self.name}/{name}{sorted(arguments.items())}")


def test_a_name_that_two_servers_have_is_told_apart_by_the_server() -> None:
    box = Toolbox([Known("a", "time", "read"), Known("b", "read")])
    assert [tool.name for tool in box.tools] == ["time", "a.read", "b.read"]
    assert box.call(Call("1", "b.read", '{"x": 1}')).text == "b/read[('x', 1)]"


def test_a_server_that_cannot_be_asked_leaves_the_others() -> None:
    box = Toolbox([Known("a", broken=True), Known("b", "read")])
    assert ([tool.name for tool in box.tools], box.faults) == (["read"], {"a": "the MCP server 'a' has ended"})


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("read", "[1]", "not a JSON object"),
        ("read", '{"x": ', "not a JSON object"),
        ("read", "[" * 100_000, "not a JSON object"),
        ("nothing", "{}", "there is no tool 'nothing'"),
        ("breaks", "{}", "has ended"),
    ],
)
def test_what_cannot_be_called_is_an_error_that_the_model_can_read(name: str, arguments: str, says: str) -> None:
    result = Toolbox([Known("a", "read", "breaks")]).call(Call("1", name, arguments))
    assert result.wrong
    assert says in result.text


def test_the_settings_allow_single_tools_or_all_of_a_server() -> None:
    box = Toolbox([Known("a", "read", "write", allow=("read",)), Known("b", "time", allow=("*",))])
    assert {name: one.allowed for name, one in box.offered.items()} == {"read": True, "write": False, "time": True}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"a b": {"url": "http://x"}}, "a name has"),
        ({"a": {}}, "needs a command or a url"),
        ({"a": 5}, "needs a command or a url"),
        ({"a": {"command": "x", "url": "http://x"}}, "not both"),
        ({"a": {"url": "file:///etc/passwd"}}, "cannot be 'file"),
        ({"a": {"url": "http://user:word@host/"}}, "cannot be"),
        ({"a": {"command": 5}}, "cannot be '5'"),
        ({"a": {"command": "x", "env": {"A": 5}}}, "mcp.servers.a.env"),
        ({"a": {"url": "http://x", "headers": {"A": "b\r\nC: d"}}}, "mcp.servers.a.headers"),
        ({"a": {"command": "x", "alow": "*"}}, "there are command, args, url"),
    ],
)
def test_a_table_that_cannot_be_a_server_is_refused_with_its_place(table: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        KINDS["Mapping[str, McpServer]"][1](table)


def test_a_table_is_a_command_in_one_text_or_in_words_or_a_url() -> None:
    read = KINDS["Mapping[str, McpServer]"][1]
    one = read({"a": {"command": "uvx 'my server' --x"}, "b": {"command": "npx", "args": ["-y", "files"]}})
    assert (one["a"].command, one["b"].command) == (("uvx", "my server", "--x"), ("npx", "-y", "files"))
    far = read({"c": {"url": "https://host/mcp", "headers": {"X-Key": "k3y"}, "allow": "*", "serve": True}})["c"]
    assert (str(far), far.allow, far.serve) == ("https://host/mcp", ("*",), True)
    assert "k3y" not in repr(far)
