"""Anthropic's messages."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import HELLO, both, named, post, refused
from tools.http_transcripts.cases.openai_chat import SCHEMA

PATH = "/v1/messages"
ASK: dict[str, Any] = {"model": "talker", "messages": HELLO, "max_tokens": 6, "temperature": 0}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}}, "required": ["city"]}
TOOL = {"name": "weather", "description": "Tells it.", "input_schema": PARAMETERS}
CALLER = ASK | {"model": "caller", "tools": [TOOL], "max_tokens": 40}
ROUND = [
    *HELLO,
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "cold"}]},
]
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
IMAGE = [{"role": "user", "content": [{"type": "image", "source": {}}]}]

CASES = named(
    "anthropic",
    both("an answer", PATH, ASK),
    both("an answer that ends", PATH, ASK | {"model": "thinker", "max_tokens": 40}),
    both("a system text", PATH, ASK | {"system": "Be brief."}),
    both("blocks", PATH, ASK | {"system": [{"type": "text", "text": "Be brief."}], "messages": ROUND[:1]}),
    both("a stop text", PATH, ASK | {"stop_sequences": ["w"], "max_tokens": 20}),
    both("thoughts", PATH, ASK | {"model": "thinker", "max_tokens": 40, "thinking": {"type": "adaptive"}}),
    both("a tool is called", PATH, CALLER),
    both("a tool has to be called", PATH, ASK | {"tools": [TOOL], "tool_choice": {"type": "any"}, "max_tokens": 60}),
    both("no tool is wanted", PATH, CALLER | {"tool_choice": {"type": "none"}}),
    both("the result of a tool", PATH, CALLER | {"messages": ROUND}),
    both("a tool of a provider", PATH, CALLER | {"tools": [TOOL, SEARCH]}),
    both("what the assistant has begun", PATH, ASK | {"messages": [*HELLO, {"role": "assistant", "content": "The"}]}),
    both(
        "JSON of a schema",
        PATH,
        ASK | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, "max_tokens": 60},
    ),
    both("fields without effect", PATH, ASK | {"metadata": {"user_id": "x"}, "service_tier": "auto"}),
    post("a key of the client", PATH, ASK, headers={"x-api-key": "any", "anthropic-version": "2023-06-01"}),
    post("tokens", f"{PATH}/count_tokens", {"model": "talker", "messages": HELLO}),
    post("tokens with tools", f"{PATH}/count_tokens", {"model": "caller", "messages": HELLO, "tools": [TOOL]}),
    post("refused, tokens of nobody", f"{PATH}/count_tokens", {"model": "nobody", "messages": HELLO}),
    post("refused, tokens of nothing", f"{PATH}/count_tokens", {"model": "talker"}),
    refused(
        PATH,
        ASK,
        {
            "unknown model": {"model": "nobody"},
            "unknown model, streamed": {"model": "nobody", "stream": True},
            "missing max_tokens": {"max_tokens": ...},
            "no tokens": {"max_tokens": 0},
            "missing messages": {"messages": ...},
            "no messages": {"messages": []},
            "a message that is a text": {"messages": ["x"]},
            "unknown role": {"messages": [{"role": "wizard", "content": "x"}]},
            "an image": {"messages": IMAGE},
            "content of another type": {"messages": [{"role": "user", "content": 5}]},
            "too long": {"messages": [{"role": "user", "content": "word " * 12_000}]},
            "too long, streamed": {"messages": [{"role": "user", "content": "word " * 12_000}], "stream": True},
            "temperature below 0": {"temperature": -1},
            "a choice that is no tool": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "fly"}},
            "a tool with a wrong name": {"tools": [{"name": "a b", "input_schema": {}}]},
            "an empty stop": {"stop_sequences": [""]},
            "servers of tools": {"mcp_servers": [{"type": "url", "url": "http://x"}]},
        },
    ),
    post("refused, unknown field", PATH, ASK | {"no_such_field": 3}, headers={"X-Woolly-Strict": "1"}),
    post("refused, an unknown path", f"{PATH}/nowhere", {}),
)
