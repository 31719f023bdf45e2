"""Tools of MCP servers in Responses and for the page: off unless allowed, confirmed by the user unless trusted."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.test_http_transport import Handler, Small
from tests.mcp.test_toolbox import Known
from tests.server.conftest import Live, Start
from tests.server.raw import Raw
from tests.server.stand_in import until
from tests.server.test_responses import events
from woolly.config.rows import McpServer
from woolly.io.cancellation import AbandonedError, Cancellation
from woolly.limits import LIMITS
from woolly.mcp import CallToolResult, Client, Toolbox
from woolly.server.accounts import Resource
from woolly.server.generate.mcp_tools import TOOLS, Remotes

ROOT = Path(__file__).resolve().parents[2]
PATH = "/v1/responses"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
TOOL = {"type": "mcp", "server_label": "box", "require_approval": "never"}


class Adds(Known):
    """A server in memory that adds."""

    def __init__(self, name: str = "box", *, wrong: bool = False, broken: bool = False) -> None:
        super().__init__(name, "add", "other", allow=("add",), broken=broken)
        self.wrong, self.asked = wrong, list[Any]()

    def call(self, name: str, arguments: Any) -> CallToolResult:
        self.asked.append((name, dict(arguments)))
        return CallToolResult("no" if self.wrong else str(sum(arguments.values())), self.wrong)


Box = Callable[..., tuple[Live, Adds]]


@pytest.fixture
def box(start: Start) -> Box:
    """A server whose model calls a tool and answers once it has a result; with `always` it never stops calling."""

    def begin(*, always: bool = False, keys: tuple[str, ...] = (), **how: Any) -> tuple[Live, Adds]:
        digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)
        live, adds = start(script=CALL, keys=digests), Adds(**how)
        live.app.remotes._known = {"box": adds}
        live.ask("POST", "/api/v1/models/beta/load", {}, {"X-API-Key": keys[0]} if keys else None)
        talker = live.loader.talkers[0]
        submit = talker.submit

        def answering(request: Any, *more: Any) -> Any:
            messages = getattr(request, "request", request).messages or ()
            has_result = any(message["role"] == "tool" for message in messages)
            talker.script = CALL if always or not has_result else "It is done."
            return submit(request, *more)

        talker.submit = answering  # type: ignore[method-assign]
        return live, adds

    return begin


def ask(live: Live, *, key: str = "", **fields: Any) -> tuple[int, Any]:
    body = {"input": "1 + 2?", "tools": [TOOL], "max_output_tokens": 50} | fields
    status, _, answer = live.ask("POST", PATH, body, {"X-API-Key": key} if key else None)
    return status, answer


def kinds(record: Any) -> list[str]:
    return [item["type"] for item in record["output"]]


def test_a_call_is_made_here_and_the_answer_goes_on_with_its_result(box: Box) -> None:
    live, adds = box()
    status, answer = ask(live)
    assert status == 200, answer
    assert kinds(answer) == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, message = answer["output"]
    assert [tool["name"] for tool in listed["tools"]] == ["add", "other"]
    assert (call["output"], call["error"], call["status"]) == ("3", None, "completed")
    assert message["content"][0]["text"] == "It is done."
    assert adds.asked == [("add", {"a": 1, "b": 2})]
    messages = live.loader.talkers[0].seen[-1].messages or ()
    assert [row["role"] for row in messages] == ["user", "assistant", "tool"]


def test_a_stream_tells_each_step_and_adds_up_to_the_record(box: Box) -> None:
    live, _ = box()
    rows = events(ask(live, stream=True)[1])
    assert [row["sequence_number"] for row in rows] == list(range(len(rows)))
    names = [row["type"].removeprefix("response.") for row in rows]
    assert names[2:12] == [
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
        "output_item.added",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.in_progress",
        "mcp_call.completed",
        "output_item.done",
    ]
    done = [row["item"] for row in rows if row["type"] == "response.output_item.done"]
    assert done == rows[-1]["response"]["output"]
    assert [row["output_index"] for row in rows if row["type"].endswith("item.added")] == [0, 1, 2]


def test_without_a_word_of_the_user_the_answer_ends_with_the_question(box: Box) -> None:
    live, adds = box()
    first = ask(live, tools=[TOOL | {"require_approval": "always"}])[1]
    assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
    assert adds.asked == []
    question = first["output"][1]["id"]

    def word(approve: bool) -> Any:
        answer = {"type": "mcp_approval_response", "approval_request_id": question, "approve": approve}
        return ask(live, input=[answer], previous_response_id=first["id"])[1]

    refused = word(False)
    assert (kinds(refused), adds.asked) == (["message"], [])
    messages = live.loader.talkers[0].seen[-1].messages or ()
    assert messages[-1]["content"] == "the user did not allow this call"
    allowed = word(True)
    assert kinds(allowed) == ["mcp_call", "message"]
    assert allowed["output"][0]["approval_request_id"] == question
    later = ask(live, input="And?", previous_response_id=allowed["id"])[1]
    assert (kinds(later), len(adds.asked)) == (["message"], 1)  # the call is not made again


QUESTION = {
    "type": "mcp_approval_request",
    "id": "mcpr_" + "0" * 48,
    "server_label": "box",
    "name": "add",
    "arguments": '{"a": 1, "b": 2}',
}
KEYS = ("the-first-key-of-thirty-two-signs", "another-key-of-thirty-two-signs-x")


def approved(question: dict[str, Any], **changes: Any) -> list[Any]:
    """A conversation in which the user approves a question, which a client may have changed."""
    asked = question | changes
    answer = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}
    return [{"role": "user", "content": "1 + 2?"}, asked, answer]


@pytest.mark.parametrize("stream", [False, True])
def test_s25_where_there_are_keys_only_their_owners_use_tools(box: Box, stream: bool) -> None:
    live, adds = box(keys=KEYS[:1])
    for fields in ({}, {"input": approved(QUESTION)}, {"tools": [TOOL | {"server_label": "nobody"}]}):
        assert ask(live, stream=stream, **fields)[0] == 401
    assert live.ask("POST", "/v1/responses", {"input": "x", "max_output_tokens": 2})[0] == 200
    assert adds.asked == []
    assert kinds(ask(live, key=KEYS[0])[1]) == ["mcp_list_tools", "mcp_call", "message"]


def test_s29_an_approval_is_good_for_the_call_that_was_asked_about_and_for_nothing_else(box: Box) -> None:
    live, adds = box(keys=KEYS)
    tools = [TOOL | {"require_approval": "always"}]
    url = {"server_url": "http://127.0.0.1:1/other"}
    asked = ask(live, key=KEYS[0], tools=tools)[1]["output"][1]
    assert (asked["type"], asked["name"]) == ("mcp_approval_request", "add")
    other = ask(live, key=KEYS[0], tools=tools)[1]["output"][1]
    assert asked["id"] != other["id"]
    forged: list[tuple[str, list[Any], list[Any]]] = [
        (KEYS[0], approved(QUESTION), tools),
        (KEYS[0], approved(QUESTION | {"id": "mcpr_"}), tools),
        (KEYS[0], approved(asked, id=asked["id"][:-1]), tools),
        (KEYS[0], approved(asked, id=asked["id"] + "0"), tools),
        (KEYS[0], approved(asked, id="ä"), tools),
        (KEYS[0], approved(asked, name="other"), tools),
        (KEYS[0], approved(asked, arguments='{"a": 1, "b": 3}'), tools),
        (KEYS[0], approved(asked, server_label="bow"), tools),
        (KEYS[0], approved(asked, arguments=None), tools),
        (KEYS[0], approved(asked), [tools[0] | url]),
        (KEYS[1], approved(asked), tools),
    ]
    for key, items, named in forged:
        for stream in (False, True):
            status, answer = ask(live, key=key, input=items, tools=named, stream=stream)
            assert (status, answer["error"]["param"]) == (400, "input"), items
    assert adds.asked == []
    assert kinds(ask(live, key=KEYS[0], input=approved(asked), tools=tools)[1]) == [
        "mcp_list_tools",
        "mcp_call",
        "message",
    ]
    assert adds.asked == [("add", {"a": 1, "b": 2})]


def test_s29_an_approval_that_is_sent_twice_makes_one_call(box: Box) -> None:
    live, adds = box()
    tools = [TOOL | {"require_approval": "always"}]
    question = ask(live, tools=tools)[1]["output"][1]
    items = approved(question)
    assert ask(live, input=[*items, items[-1]], tools=tools)[0] == 200
    assert len(adds.asked) == 1


def test_an_approval_outlives_the_server_that_asked(box: Box) -> None:
    first, _ = box()
    tools = [TOOL | {"require_approval": "always"}]
    question = ask(first, tools=tools)[1]["output"][1]
    second, adds = box()
    assert ask(second, input=approved(question), tools=tools)[0] == 200
    assert adds.asked == [("add", {"a": 1, "b": 2})]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "mcp_call", "approval_request_id": []},
        {"type": "mcp_approval_response", "approval_request_id": {}, "approve": True},
        {"type": "mcp_approval_response", "approval_request_id": [], "approve": False},
        {"type": "mcp_approval_request", "id": ["x"]},
        {"type": ["mcp_call"]},
        {"type": {}},
        "mcp_call",
        None,
    ],
)
def test_items_about_tools_that_are_no_such_items_are_refused_by_their_fault(box: Box, item: Any) -> None:
    live, adds = box()
    assert ask(live, input=[{"role": "user", "content": "1 + 2?"}, item])[0] in (200, 400)
    assert ask(live, tools=[TOOL, {"type": []}])[0] in (200, 400)
    assert adds.asked.count(("add", {"a": 1, "b": 2})) == len(adds.asked)


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        ({"never": {"tool_names": ["add"]}}, False),
        ({"never": {"tool_names": ["other"]}}, True),
        ({"always": {"tool_names": ["other"]}}, True),
        (None, True),
    ],
)
def test_which_calls_are_asked_about_says_the_request(box: Box, rule: Any, asks: bool) -> None:
    live, adds = box()
    answer = ask(live, tools=[TOOL | {"require_approval": rule}])[1]
    assert ("mcp_approval_request" in kinds(answer), bool(adds.asked)) == (asks, not asks)


def test_only_the_allowed_tools_are_offered(box: Box) -> None:
    live, adds = box()
    answer = ask(live, tools=[TOOL | {"allowed_tools": ["other"]}])[1]
    assert [tool["name"] for tool in answer["output"][0]["tools"]] == ["other"]
    assert adds.asked == []
    assert [tool.name for tool in live.loader.talkers[0].seen[-1].tools] == ["other"]


def test_a_model_that_never_stops_calling_is_stopped(box: Box) -> None:
    live, adds = box(always=True)
    assert kinds(ask(live)[1]).count("mcp_call") == LIMITS.mcp_rounds
    adds.asked.clear()
    assert kinds(ask(live, max_tool_calls=2)[1]).count("mcp_call") == 2
    assert len(adds.asked) == 2
    assert live.loader.talkers[0].seen[-1].tool_choice == "none"


def test_a_failed_call_and_a_broken_server_are_told_and_the_answer_goes_on(box: Box) -> None:
    live, _ = box(wrong=True)
    call = ask(live)[1]["output"][1]
    assert (call["status"], call["error"], call["output"]) == ("failed", "no", None)
    live, _ = box(broken=True)
    answer = ask(live)[1]
    assert answer["output"][0]["error"] == "the MCP server 'box' has ended"
    assert answer["status"] == "completed"


def test_functions_of_the_caller_stay_the_callers(box: Box) -> None:
    live, _ = box()
    live.loader.talkers[0].script = ""
    own = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    status, answer = ask(live, tools=[TOOL, own])
    assert (status, answer["error"]["param"]) == (400, "tools[1].name")


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"server_label": "nobody"}, "tools"),
        ({"server_label": "nobody", "server_url": "http://169.254.169.254/latest"}, "tools"),
        ({"server_label": "box", "server_url": "http://127.0.0.1:1/other"}, "tools"),
        ({"server_label": ""}, "tools[0].server_label"),
        ({"server_label": "box", "connector_id": "mail"}, "tools[0].connector_id"),
        ({"server_label": "box", "headers": {"A": "b\r\nC: d"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": "no"}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"Host": "another.example"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"hOST": "another.example"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"Host ": "another.example"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"Transfer-Encoding": "chunked"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"Content-Length": "0"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"": "x"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {"A:b": "x"}}, "tools[0].headers"),
        ({"server_label": "box", "headers": {f"X-{number}": "x" for number in range(33)}}, "tools[0].headers"),
        ({"server_label": "box", "require_approval": "perhaps"}, "tools[0].require_approval"),
        ({"server_label": "box", "allowed_tools": [5]}, "tools[0].allowed_tools"),
    ],
)
def test_s25_what_is_not_allowed_or_cannot_be_meant_is_refused(box: Box, tool: dict[str, Any], param: str) -> None:
    live, adds = box()
    for stream in (False, True):
        status, answer = ask(live, tools=[{"type": "mcp"} | tool], stream=stream)
        assert (status, answer["error"]["param"]) == (400, param)
    assert adds.asked == []


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://tools.example/mcp", True),
        ("https://tools.example/mcp/", True),
        ("https://TOOLS.example/mcp/files", True),
        ("https://tools.example/mcpx", False),
        ("https://tools.example/", False),
        ("http://tools.example/mcp", False),
        ("https://tools.example:8443/mcp", False),
        ("https://tools.example.evil/mcp", False),
        ("https://user@tools.example/mcp", False),
        ("https://tools.example/mcp/../admin", False),
        ("https://tools.example/mcp/%2e%2e/admin", False),
        ("https://tools.example/mcp\\..\\admin", False),
        ("https://evil/?https://tools.example/mcp", False),
        ("https://tools.example/mcp/v1.2/a_b~c-d", True),
        ("https://tools.example/mcp?session=../x", True),
        ("https://tools.example/mcp/..%2fadmin", False),
        ("https://tools.example/mcp/..%2Fadmin", False),
        ("https://tools.example/mcp/%2e%2e%2fadmin", False),
        ("https://tools.example/mcp/..%5cadmin", False),
        ("https://tools.example/mcp/..%252fadmin", False),
        ("https://tools.example/mcp/%252e%252e/admin", False),
        ("https://tools.example/mcp/..;/admin", False),
        ("https://tools.example/mcp/..;x=1/admin", False),
        ("https://tools.example/mcp/..%00/admin", False),
        ("https://tools.example/mcp/..%u2215admin", False),
        ("https://tools.example/mcp/.\t./admin", False),
        ("https://tools.example/mcp/..\u2215admin", False),
        ("https://tools.example/mcp/\uff0e\uff0e/admin", False),
        ("https://tools.example/mcp/.", False),
        ("https://tools.example/mcp/..", False),
        ("https://tools.example/%6dcp/", False),
        ("https://[tools.example/mcp", False),
        ("https://tools.example\\@evil/mcp", False),
        ("https://tools.example:x/mcp", False),
        ("https://keyed.example/mcp?key=1", True),
        ("https://keyed.example/mcp?key=2", False),
        ("https://keyed.example/mcp/more?key=1", False),
    ],
)
def test_s32_a_url_is_allowed_below_one_that_the_operator_wrote(live: Live, url: str, allowed: bool) -> None:
    urls = ("https://tools.example/mcp", "https://keyed.example/mcp?key=1")
    settings = live.app.settings.__class__(mcp_urls=urls)
    assert Remotes(settings, live.app.config, b"", live.app.accounts)._allows(url) is allowed


@pytest.fixture
def small() -> Iterator[Small]:
    server = Small()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_keys_for_a_server_go_there_and_nowhere_else(start: Start, small: Small) -> None:
    url = f"http://127.0.0.1:{small.server_port}/mcp"
    live = start(script="Yes.", mcp_urls=(url,))
    tool = {"type": "mcp", "server_label": "far", "server_url": url, "headers": {"X-Own": "a-secret"}}
    status, answer = ask(live, tools=[tool | {"authorization": "another-secret"}])
    assert (status, kinds(answer)) == (200, ["mcp_list_tools", "message"])
    assert small.seen[0][1]["X-Own"] == "a-secret"
    assert small.seen[0][1]["Authorization"] == "Bearer another-secret"
    stored = live.ask("GET", f"{PATH}/{answer['id']}")[2]
    assert "secret" not in json.dumps([answer, stored])


def test_s32_a_message_goes_to_the_host_that_is_allowed_whatever_headers_a_request_has(
    start: Start, small: Small
) -> None:
    url = f"http://127.0.0.1:{small.server_port}/mcp"
    live = start(script="Yes.", mcp_urls=(url,))
    tool = {"type": "mcp", "server_label": "far", "server_url": url}
    for name in ("Host", "host", "HOST"):
        assert ask(live, tools=[tool | {"headers": {name: "admin.internal"}}])[0] == 400
    assert ask(live, tools=[tool | {"headers": {"X-Host": "admin.internal"}}])[0] == 200
    assert {headers["Host"] for _, headers in small.seen} == {f"127.0.0.1:{small.server_port}"}


class Waits(Adds):
    """A server that answers when `go` is set; counts those who wait."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.go, self.waiting = threading.Event(), 0

    def call(self, name: str, arguments: Any) -> CallToolResult:
        self.waiting += 1
        assert self.go.wait(60)
        return super().call(name, arguments)


def test_s36_a_caller_whose_tools_hang_takes_no_other_callers_tools_along(box: Box) -> None:
    live, _ = box(keys=KEYS)
    slow, quick = Waits("slow"), Adds("quick")
    live.app.remotes._known = {"slow": slow, "quick": quick}
    heavy, light = ({"X-API-Key": key} for key in KEYS)
    data = json.dumps({"arguments": {"a": 1}}).encode()
    hanging = [
        Raw(live.port).post("/api/v1/mcp/servers/slow/tools/add", data, heavy) for _ in range(3 * int(TOOLS.all))
    ]
    assert until(lambda: slow.waiting == TOOLS.each)
    path = "/api/v1/mcp/servers/quick/tools/add"
    assert live.ask("POST", path, {"arguments": {"a": 2}}, light)[2]["result"]["content"][0]["text"] == "2"
    assert slow.waiting == live.app.accounts.out(Resource.TOOLS) == TOOLS.each
    for raw in hanging:
        raw.close()
    assert until(lambda: live.app.state.open == 0)
    slow.go.set()
    assert until(lambda: not live.app.accounts.out(Resource.TOOLS))
    assert slow.waiting == TOOLS.each  # the others have gone before their turn


def hangs(handler: Handler, _message: dict[str, Any]) -> None:
    handler.connection.recv(1)  # until the client is gone


@pytest.mark.parametrize("over", ["a command", "HTTP"])
def test_l20_who_goes_while_a_tool_is_called_has_nothing_out_any_more(box: Box, over: str) -> None:
    live, _ = box(keys=KEYS)
    small = Small(hangs)
    threading.Thread(target=small.serve_forever, args=(0.01,), daemon=True).start()
    command = (sys.executable, "-m", "tests.mcp.server", "hangs")
    server = McpServer(command, env={"PYTHONPATH": str(ROOT)}) if over == "a command" else small.at
    client = Client("slow", server, 10_000.0)
    live.app.remotes._known = {"slow": client}
    heavy = {"X-API-Key": KEYS[0]}
    assert live.ask("GET", "/api/v1/mcp/servers", headers=heavy)[2][0]["error"] is None
    data = json.dumps({"arguments": {"a": 1, "b": 2}}).encode()
    hanging = [Raw(live.port).post("/api/v1/mcp/servers/slow/tools/add", data, heavy) for _ in range(5)]
    assert until(lambda: live.app.accounts.out(Resource.TOOLS) == TOOLS.each)  # one is answered, one waits for it
    for raw in hanging:
        raw.close()
    assert until(lambda: live.app.accounts.empty and not live.app.state.open)
    client.close()
    small.shutdown()
    small.server_close()


def test_l20_who_goes_while_a_server_of_tools_is_connected_to_has_nothing_out_any_more() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):  # whoever comes now is not answered
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(("127.0.0.1", port))
        cancellation = Cancellation()
        client = Client("full", McpServer(url=f"http://127.0.0.1:{port}/mcp"), 10_000.0)
        timer = threading.Timer(0.1, cancellation.cancel)
        timer.start()
        with pytest.raises(AbandonedError):
            cancellation.run(client.tools)
        for sock in waiting:
            sock.close()


def test_s36_servers_are_not_asked_any_more_for_a_caller_that_has_gone() -> None:
    cancellation, asked = Cancellation(), list[str]()

    class Leaves(Adds):
        def tools(self) -> Any:
            asked.append(self.name)
            cancellation.cancel()
            return super().tools()

    with pytest.raises(AbandonedError):
        cancellation.run(lambda: Toolbox([Leaves(f"s{number}") for number in range(9)]))
    assert asked == ["s0"]


def test_s36_a_request_names_a_limited_number_of_servers(box: Box) -> None:
    live, _ = box()
    tools = [TOOL | {"server_label": f"s{number}"} for number in range(LIMITS.mcp_servers + 1)]
    status, answer = ask(live, tools=tools)
    assert (status, answer["error"]["param"]) == (400, "tools")
    assert "17 MCP servers" in answer["error"]["message"]


def test_the_page_lists_servers_and_calls_their_tools(box: Box) -> None:
    live, adds = box()
    (record,) = live.ask("GET", "/api/v1/mcp/servers")[2]
    assert (record["name"], record["error"]) == ("box", None)
    assert [(tool["name"], tool["allowed"]) for tool in record["tools"]] == [("add", True), ("other", False)]
    answer = live.ask("POST", "/api/v1/mcp/servers/box/tools/add", {"arguments": {"a": 4, "b": 5}})[2]
    assert answer["result"]["content"][0]["text"] == "9"
    adds.wrong = True
    assert live.ask("POST", "/api/v1/mcp/servers/box/tools/add", {"arguments": {}})[2]["error"] == "no"
    assert live.ask("POST", "/api/v1/mcp/servers/nobody/tools/add", {"arguments": {}})[0] == 404
