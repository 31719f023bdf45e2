"""Woolly's own routes for answers, as Ole and its older clients ask."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import HELLO, both, named, post, refused

OLE = {"X-Ole-Client": "1", "User-Agent": "Ole/1.0"}
COMPLETE, CHAT = "/api/v1/inference/complete", "/api/v1/inference/chat"
PROMPT: dict[str, Any] = {"model": "talker", "prompt": "Once upon", "max_tokens": 5, "temperature": 0}
SEVERAL = {"model": "talker", "prompts": ["a", "b"], "max_tokens": 3, "temperature": 0}
ASK: dict[str, Any] = {"model": "talker", "messages": HELLO, "max_tokens": 5, "temperature": 0}

CASES = named(
    "woolly",
    both("a prompt", COMPLETE, PROMPT),
    both("a prompt with notes", COMPLETE, PROMPT | {"gpu_layers": 3}),
    both("a prompt in two choices", COMPLETE, PROMPT | {"n": 2, "seed": 1, "temperature": 1.0}, unordered=True),
    both("a prompt with a format", COMPLETE, PROMPT | {"format": "json", "max_tokens": 12}),
    both("a prompt of other names", COMPLETE, {"model": "talker", "prompt": "Hi", "max_length": 3, "temperature": 0}),
    both("a chat", CHAT, ASK),
    both("a chat of Ole", CHAT, ASK, headers=OLE),
    both("a chat that ends", CHAT, ASK | {"model": "thinker", "max_tokens": 40}),
    both("a chat with a stop text", CHAT, ASK | {"stop_sequences": ["w"], "max_tokens": 20}),
    both("a chat with an adapter", CHAT, ASK | {"lora": {"pirate": 0.5}}),
    post("a stream", "/api/v1/inference/stream", PROMPT),
    post(
        "several prompts",
        f"{COMPLETE}/batch",
        SEVERAL,
    ),
    both("a prompt of a model", "/api/v1/models/talker/generate", {"prompt": "Hi", "max_length": 3, "temperature": 0}),
    both("a prompt of the optimized path", "/api/v1/optimized/completions", PROMPT),
    both("a chat of the optimized path", "/api/v1/optimized/chat/completions", ASK),
    both("a chat over MCP", "/api/v1/mcp/chat", ASK),
    refused(
        CHAT,
        ASK,
        {
            "unknown model": {"model": "nobody"},
            "no messages": {"messages": []},
            "missing messages": {"messages": ...},
            "unknown role": {"messages": [{"role": "wizard", "content": "x"}]},
            "unknown session": {"session_id": "sess_nobody"},
            "temperature below 0": {"temperature": -1},
            "too long": {"messages": [{"role": "user", "content": "word " * 12_000}]},
            "too long, streamed": {"messages": [{"role": "user", "content": "word " * 12_000}], "stream": True},
        },
    ),
    refused(
        COMPLETE,
        PROMPT,
        {
            "a prompt of spaces": {"prompt": "  \n\t "},
            "a missing prompt": {"prompt": ...},
            "a prompt that is a number": {"prompt": 5},
            "a temperature below 0": {"temperature": -1},
        },
    ),
    post("refused, unknown field", CHAT, ASK | {"no_such_field": 3}, headers={"X-Woolly-Strict": "1"}),
    post("refused, no prompts", f"{COMPLETE}/batch", {"model": "talker", "prompts": []}),
    post("refused, too many prompts", f"{COMPLETE}/batch", {"prompts": ["x"] * 257, "max_tokens": 1}),
    post("refused, a prompt of nobody", "/api/v1/models/nobody/generate", {"prompt": "Hi"}),
    post("refused, nothing is loaded", CHAT, {"messages": HELLO}, server="empty", headers=OLE),
)
