"""Rows of batches for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"deep": {"type": "boolean"}},
            "required": ["deep"],
            "additionalProperties": False,
        },
    },
}


def row(custom_id: str, url: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    filled = body or {"messages": HELLO, "max_tokens": 4}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": filled}


def every_kind(count: int) -> list[dict[str, Any]]:
    """Rows of all kinds: sampled and greedy, several choices, likelihoods, calls, responses, and some that fail."""
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me more. " * 20}], "max_tokens": 24}
    kinds: list[dict[str, Any]] = [
        row("", **chat),
        row("", "/v1/completions", prompt="Once upon a time", max_tokens=16, n=2, logprobs=1),
        row("", "/v1/responses", input="Say something", max_output_tokens=12),
        row("", **chat | {"temperature": 0, "seed": 7}),
        row("", messages=HELLO, max_tokens=96, tools=[TOOL], tool_choice="required"),
        row("", messages=HELLO, temperature=-1),
    ]
    return [kinds[index % len(kinds)] | {"custom_id": f"row-{index}"} for index in range(count)]


def write(path: Path, rows: list[Any]) -> Path:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
