"""A small MCP server over the standard streams, and the many ways in which one can misbehave.

    python -m tests.mcp.server [FAULT]

Without a fault it is a good one, with the tools `add`, `echo` and `fail`. With one, it does that when a tool is called.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

TOOLS = [
    {
        "name": "add",
        "description": "Add two digits.",
        "inputSchema": {
            "type": "object",
            "properties": {name: {"type": "integer", "minimum": 0, "maximum": 9} for name in ("a", "b")},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
    {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
    {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object"}},
    {"name": "not a name", "inputSchema": {"type": "object"}},
    {"name": "list", "inputSchema": {"type": "array"}},
]


def text(content: str, *, wrong: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], "isError": wrong}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "add":
        return text(str(arguments["a"] + arguments["b"]))
    if name == "echo":
        return text(arguments.get("text", os.environ.get(arguments.get("variable", ""), "")))
    return text("it failed, as it always does", wrong=True)


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """What a good server of the revisions with a handshake answers."""
    method, params, id_ = message["method"], message.get("params", {}), message.get("id")
    if id_ is None:
        return None
    if method == "initialize":
        info = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        result: dict[str, Any] = info | {"serverInfo": {"name": "small", "version": "1"}}
    elif method == "tools/list":
        first, more = TOOLS[:1], TOOLS[1:]
        result = {"tools": more} if params.get("cursor") else {"tools": first, "nextCursor": "more"}
    elif method == "tools/call":
        result = called(params["name"], params["arguments"])
    else:
        return {"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": "there is no such method"}}
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def line(**fields: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n")


def dies(_id: int) -> None:
    print("the disk has gone", file=sys.stderr)
    raise SystemExit(3)


def floods(_id: int) -> None:
    while True:
        line(method="notifications/message", params={"data": "x" * 60_000})


def lasts(id_: int) -> None:
    for _ in range(3):
        line(method="notifications/progress", params={})
    line(id=90, method="sampling/createMessage", params={})
    refusal = json.loads(sys.stdin.readline())
    line(id=91, method="ping")
    pong = json.loads(sys.stdin.readline())
    line(id=id_, result=text(f"{refusal['error']['code']} {pong['result']}"))


FAULTS: dict[str, Callable[[int], None]] = {
    "dies": dies,
    "hangs": lambda _: time.sleep(60),
    "floods": floods,
    "no_json": lambda _: write(b"Traceback (most recent call last):\n"),
    "no_utf8": lambda _: write(b"\xff\xfe{}\n"),
    "no_message": lambda _: write(b"[1, 2]\n"),
    "deep": lambda _: write(b"[" * 100_000 + b"\n"),
    "wrong_id": lambda id_: line(id=id_ + 1, result=text("for somebody else")),
    "no_result": lambda id_: line(id=id_, result=5),
    "neither": lambda id_: line(id=id_),
    "huge_line": lambda _: write(b'{"a": "' + b"x" * (5 << 20)),
    "huge_result": lambda id_: line(id=id_, result=text("x" * 100_000)),
    "tells_error": lambda id_: line(id=id_, error={"code": -32000, "message": "no\x1b[31m\nmore"}),
    "lasts": lasts,
}


def main() -> None:
    fault = FAULTS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    for row in sys.stdin:
        message = json.loads(row)
        if fault is not None and message["method"] == "tools/call":
            fault(message["id"])
        else:
            reply = answer(message)
            if reply is not None:
                write(json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main()
