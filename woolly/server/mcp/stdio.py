"""MCP over the standard streams: a JSON-RPC message a line comes in, one goes out, until there is no more input.

Nothing else is ever written to standard output. Messages are answered side by side, and `notifications/cancelled` stops
one.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, BinaryIO

import msgspec

from woolly.config.serving import Serving
from woolly.errors import WoollyError
from woolly.mcp.rpc import PARSE_ERROR, RpcError, error_response
from woolly.server.http.body import read_json
from woolly.server.http.caller import Caller
from woolly.server.mcp.mcp import Mcp

CANCELLED = "notifications/cancelled"


async def serve_stdio(mcp: Mcp, limits: Serving, lines: BinaryIO | None = None, out: BinaryIO | None = None) -> None:
    """Answer until the end of the input; requests that still run then are cancelled."""
    lines, out = lines or sys.stdin.buffer, out or sys.stdout.buffer
    running = dict[Any, asyncio.Task[None]]()
    tasks = set[asyncio.Task[None]]()

    def send(message: dict[str, Any]) -> None:
        out.write(msgspec.json.encode(message) + b"\n")
        out.flush()

    async def answer(message: Any) -> None:
        now = asyncio.get_running_loop().time()
        caller = Caller(name="stdio", salt=b"", begun_s=now, deadline_s=now + limits.request_timeout)
        try:
            reply = await mcp.reply(caller, message)
            if reply is not None:
                send(reply)
        finally:
            running.pop(message.get("id"), None)

    try:
        while line := await asyncio.to_thread(lines.readline, limits.max_body_size + 1):
            if not line.strip():
                continue
            try:
                message = read_json(line, limits)
            except WoollyError as error:
                send(error_response(None, RpcError(PARSE_ERROR, str(error))))
                continue
            if message.get("method") == CANCELLED:
                stopped = running.get(_id(message.get("params")))
                if stopped is not None:
                    stopped.cancel()
                continue
            task = running[message.get("id")] = asyncio.create_task(answer(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await asyncio.sleep(0)  # answers that need no waiting come in order
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _id(params: object) -> Any:
    return params.get("requestId") if isinstance(params, dict) else None
