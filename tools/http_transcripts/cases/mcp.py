"""The Model Context Protocol at /mcp and under /api/v1/mcp."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import Case, get, named, post

NEWEST = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": NEWEST, "io.modelcontextprotocol/clientCapabilities": {}}
ARGUMENTS = {"prompt": "Hi", "max_tokens": 4, "temperature": 0}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "tools": ("tools/list", {}),
    "resources": ("resources/list", {}),
    "templates": ("resources/templates/list", {}),
    "prompts": ("prompts/list", {}),
    "a tool": ("tools/call", {"name": "generate", "arguments": ARGUMENTS}),
    "a chat": (
        "tools/call",
        {
            "name": "chat",
            "arguments": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0},
        },
    ),
    "tokens": ("tools/call", {"name": "tokenize", "arguments": {"text": "Hello"}}),
    "an embedding": ("tools/call", {"name": "embed", "arguments": {"input": "hello world", "model": "encoder"}}),
    "the older tool": ("tools/call", {"name": "inference", "arguments": ARGUMENTS}),
    "wrong arguments": ("tools/call", {"name": "generate", "arguments": {}}),
    "an unknown tool": ("tools/call", {"name": "nothing"}),
    "a name that is a number": ("tools/call", {"name": 5}),
    "a resource": ("resources/read", {"uri": "model://info"}),
    "the models": ("resources/read", {"uri": "model://models"}),
    "the figures": ("resources/read", {"uri": "model://figures"}),
    "an unknown resource": ("resources/read", {"uri": "model://nothing"}),
    "a prompt": ("prompts/get", {"name": "summarize", "arguments": {"text": "Long."}}),
    "a prompt without its arguments": ("prompts/get", {"name": "system", "arguments": {}}),
    "an unknown prompt": ("prompts/get", {"name": "nothing"}),
    "an unknown method": ("no/such", {}),
    "a ping": ("ping", {}),
    "discovery": ("server/discover", {}),
}


def newest(name: str, method: str, params: dict[str, Any], **headers: str) -> Case:
    """As the newest revision asks: what the message says stands in headers, too."""
    named = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": method}
    if what := params.get("name") or params.get("uri"):
        named["Mcp-Name"] = str(what)
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    return post(f"{name}, newest", "/mcp", body, headers=named | headers)


def before(name: str, method: str, params: dict[str, Any]) -> Case:
    return post(f"{name}, before", "/mcp", {"jsonrpc": "2.0", "id": "a", "method": method, "params": params})


HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}

CASES = named(
    "mcp",
    (
        case
        for name, (method, params) in CALLS.items()
        for case in (newest(name, method, params), before(name, method, params))
    ),
    before("a handshake", "initialize", HANDSHAKE),
    before("a handshake of another version", "initialize", HANDSHAKE | {"protocolVersion": "1999-01-01"}),
    newest("a handshake", "initialize", HANDSHAKE),
    newest("refused, another method in the header", "tools/list", {}, **{"Mcp-Method": "ping"}),
    newest("refused, another version in the header", "tools/list", {}, **{"MCP-Protocol-Version": "2025-11-25"}),
    newest("refused, another name in the header", "tools/call", {"name": "generate"}, **{"Mcp-Name": "other"}),
    newest("refused, without what each says", "tools/list", {"_meta": {}}),
    post("a notification", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}),
    post("refused, no JSON", "/mcp", b"{"),
    post("refused, no method", "/mcp", {"jsonrpc": "2.0", "id": 1}),
    post("refused, another protocol", "/mcp", {"jsonrpc": "1.0", "id": 1, "method": "ping"}),
    post("refused, a list", "/mcp", [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]),
    get("refused, a stream of its own", "/mcp"),
    get("tools", "/api/v1/mcp/tools"),
    get("resources", "/api/v1/mcp/resources"),
    get("a resource", "/api/v1/mcp/resources/info"),
    get("the models as a resource", "/api/v1/mcp/resources/models"),
    get("refused, an unknown resource", "/api/v1/mcp/resources/nothing"),
    get("prompts", "/api/v1/mcp/prompts"),
    post("a prompt", "/api/v1/mcp/prompts/summarize", {"arguments": {"text": "Long."}}),
    post("refused, a prompt without its arguments", "/api/v1/mcp/prompts/summarize", {}),
    post("refused, an unknown prompt", "/api/v1/mcp/prompts/nothing", {"arguments": {}}),
    post("a tool", "/api/v1/mcp/tools/generate", {"arguments": ARGUMENTS}),
    post("a tool with wrong arguments", "/api/v1/mcp/tools/generate", {"arguments": {}}),
    post("refused, an unknown tool", "/api/v1/mcp/tools/nothing", {"arguments": {}}),
    get("servers", "/api/v1/mcp/servers"),
    post("a tool of a server", "/api/v1/mcp/servers/box/tools/add", {"arguments": {"a": 4, "b": 5}}),
    post("a tool of a server that fails", "/api/v1/mcp/servers/box/tools/fail", {"arguments": {}}),
    post("an unknown tool of a server", "/api/v1/mcp/servers/box/tools/nothing", {"arguments": {}}),
    post("refused, an unknown server", "/api/v1/mcp/servers/nobody/tools/add", {"arguments": {}}),
    get("servers where there are none", "/api/v1/mcp/servers", server="small"),
)
