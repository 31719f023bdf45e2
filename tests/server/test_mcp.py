"""The Model Context Protocol at /mcp, under /api/v1/mcp, over a WebSocket and over the standard streams."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Live
from tests.server.process import environ
from tests.server.test_socket import receive, say, talk

NEWEST = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ARGUMENTS = {"prompt": "Hi", "max_tokens": 6, "temperature": 0}


def newest(live: Live, method: str, headers: dict[str, str] | None = None, **params: Any) -> tuple[int, Any]:
    """A request of the newest revision: status and message."""
    named = {"Mcp-Name": params.get("name") or params.get("uri") or ""}
    sent_headers = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": method, **named} | (headers or {})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    status, _, answer = live.ask("POST", "/mcp", body, sent_headers)
    return status, answer


def before(live: Live, method: str, **params: Any) -> Any:
    """The message that answers a request of a revision before the newest."""
    return live.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": "a", "method": method, "params": params})[2]


def test_a_tool_says_what_the_route_says(live: Live) -> None:
    want = live.ask("POST", "/api/v1/inference/complete", ARGUMENTS)[2]["choices"][0]["text"]
    status, answer = newest(live, "tools/call", name="generate", arguments=ARGUMENTS)
    assert (status, answer["result"]["resultType"], answer["result"]["isError"]) == (200, "complete", False)
    assert answer["result"]["content"] == [{"type": "text", "text": want}]
    assert before(live, "tools/call", name="generate", arguments=ARGUMENTS)["result"]["content"][0]["text"] == want
    older = live.ask("POST", "/api/v1/mcp/tools/generate", {"arguments": ARGUMENTS})[2]
    assert (older["success"], older["result"]["content"][0]["text"]) == (True, want)


def test_lists_name_what_can_be_used_and_how_long_that_holds(live: Live) -> None:
    for what in ("tools", "resources", "prompts"):
        result = newest(live, f"{what}/list")[1]["result"]
        assert result["ttlMs"] > 0
        assert [row["name"] for row in result[what]] == [
            row["name"] for row in before(live, f"{what}/list")["result"][what]
        ]
        assert {row["name"] for row in live.ask("GET", f"/api/v1/mcp/{what}")[2]} == {r["name"] for r in result[what]}
    for tool in newest(live, "tools/list")[1]["result"]["tools"]:
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"]["properties"]


@pytest.mark.parametrize("arguments", [{}, ARGUMENTS | {"temperature": "hot"}, ARGUMENTS | {"model": "nobody"}])
def test_wrong_arguments_are_an_error_that_the_calling_model_can_read(live: Live, arguments: Any) -> None:
    result = newest(live, "tools/call", name="generate", arguments=arguments)[1]["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"]
    older = live.ask("POST", "/api/v1/mcp/tools/generate", {"arguments": arguments})
    assert (older[0], older[2]["success"]) == (200, False)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "nothing"}, -32602),
        ("resources/read", {"uri": "model://nothing"}, -32602),
        ("prompts/get", {"name": "nothing"}, -32602),
        ("prompts/get", {"name": "system", "arguments": {}}, -32602),
        ("tools/call", {"name": 5}, -32602),
    ],
)
def test_what_does_not_exist_is_an_error_of_the_protocol(live: Live, method: str, params: Any, code: int) -> None:
    headers = {"Mcp-Name": "5"} if params.get("name") == 5 else None
    answer = newest(live, method, headers, **params)[1]
    assert answer["error"]["code"] in (code, -32020)
    assert before(live, method, **params)["error"]["code"] in (code, -32002)


def test_headers_must_say_what_the_message_says(live: Live) -> None:
    for header in ({"Mcp-Method": "ping"}, {"MCP-Protocol-Version": "2025-11-25"}):
        assert newest(live, "tools/list", header)[0] == 400
    named = {"Mcp-Name": "other"}
    assert newest(live, "tools/call", named, name="generate", arguments=ARGUMENTS)[1]["error"]["code"] == -32020
    encoded = {"Mcp-Name": "=?base64?bW9kZWw6Ly9pbmZv?="}
    assert newest(live, "resources/read", encoded, uri="model://info")[0] == 200


def test_spaces_around_a_header_are_no_part_of_it(live: Live) -> None:
    named = {"Mcp-Name": "  generate  \t", "MCP-Protocol-Version": f" {NEWEST} "}
    assert newest(live, "tools/call", named, name="generate", arguments=ARGUMENTS)[0] == 200


@pytest.mark.parametrize("meta", [None, {}, *({name: META[name]} for name in META)])
def test_a_request_of_the_newest_revision_says_what_each_has_to(live: Live, meta: dict[str, Any] | None) -> None:
    status, answer = newest(live, "tools/list", _meta=meta)
    assert (status, answer["id"], answer["error"]["code"]) == (400, 1, -32602)
    assert "_meta" in answer["error"]["message"]


def test_so_does_one_over_a_carrier_without_headers(live: Live) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": NEWEST}
    with talk(live, "/api/v1/mcp/ws") as socket:
        say(socket, {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}})
        assert receive(socket)["error"]["code"] == -32602


@pytest.mark.parametrize("method", ["initialize", "ping"])
def test_the_newest_revision_has_no_handshake_and_those_before_it_have(live: Live, method: str) -> None:
    status, answer = newest(live, method)
    assert (status, answer["error"]["code"]) == (404, -32601)
    assert "result" in before(live, method)


def test_a_handshake_agrees_on_a_revision(live: Live) -> None:
    for asked, want in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
        assert before(live, "initialize", protocolVersion=asked)["result"]["protocolVersion"] == want
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    status, _, body = live.ask("POST", "/mcp", notification)
    assert (status, body) == (202, b"")
    assert live.ask("GET", "/mcp")[0] == 405


@pytest.mark.parametrize(("body", "code"), [(b"{", -32700), (b"[]", -32600), (b'{"id": 1}', -32600), (b"5", -32600)])
def test_what_is_no_message_is_refused_in_the_words_of_the_protocol(live: Live, body: bytes, code: int) -> None:
    status, _, answer = live.ask("POST", "/mcp", body)
    assert (status, answer["error"]["code"], answer["id"]) == (400, code, None)


def test_a_socket_takes_both_envelopes(live: Live) -> None:
    with talk(live, "/api/v1/mcp/ws") as socket:
        say(socket, {"type": "request", "id": "x", "method": "tools/list", "params": {}})
        assert receive(socket)["result"]["tools"]
        say(socket, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        say(socket, {"jsonrpc": "2.0", "id": 2, "method": "no/such"})
        assert receive(socket)["error"]["code"] == -32601


def test_the_standard_streams_carry_messages_and_nothing_else(talkers: Path, tmp_path: Path) -> None:
    call = {"name": "generate", "arguments": {"prompt": "Hi", "max_tokens": 3}, "_meta": META}
    lines = [
        b"not json",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}).encode(),
    ]
    command = [sys.executable, "-m", "woolly", "mcp", "talker"]
    env = environ(tmp_path, talkers) | {"WOOLLY_LOG_LEVEL": "debug"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(b"\n".join(lines) + b"\n")
        host.stdin.flush()
        answers = [json.loads(host.stdout.readline()) for _ in range(3)]
        host.stdin.close()
        assert host.stdout.read() == b""
        assert host.wait(60) == 0
    assert answers[0]["error"]["code"] == -32700
    assert NEWEST in answers[1]["result"]["supportedVersions"]
    assert (answers[2]["id"], answers[2]["result"]["isError"]) == (2, False)
