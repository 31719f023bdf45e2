"""OpenAI's Responses: answers that are kept, gone on from, listed and deleted, and tools that the server calls."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import both, delete, get, named, post, refused
from tools.http_transcripts.cases.openai_chat import SCHEMA

PATH = "/v1/responses"
ASK: dict[str, Any] = {"model": "talker", "input": "Hello", "max_output_tokens": 6, "temperature": 0}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}}, "required": ["city"]}
TOOL = {"type": "function", "name": "weather", "parameters": PARAMETERS}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Oslo"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "cold"}
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
BOX = {"type": "mcp", "server_label": "box", "require_approval": "never"}
ADDER = ASK | {"model": "adder", "tools": [BOX], "max_tool_calls": 1, "max_output_tokens": 60}
FORMAT = {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}}

CASES = named(
    "openai responses",
    both("an answer", PATH, ASK),
    both("an answer that ends", PATH, ASK | {"model": "thinker", "max_output_tokens": 40}),
    both("items", PATH, ASK | {"input": [USER], "instructions": "Be brief.", "metadata": {"who": "ada"}}),
    both("a tool is called", PATH, ASK | {"model": "caller", "tools": [TOOL], "max_output_tokens": 40}),
    both("a tool has to be called", PATH, ASK | {"tools": [TOOL], "tool_choice": "required", "max_output_tokens": 60}),
    both("the result of a tool", PATH, ASK | {"input": [USER, CALL, RESULT], "tools": [TOOL]}),
    both("JSON of a schema", PATH, ASK | {"text": FORMAT, "max_output_tokens": 60}),
    both("likelihoods", PATH, ASK | {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
    both("effort", PATH, ASK | {"reasoning": {"effort": "low"}}),
    both("tools of a provider", PATH, ASK | {"tools": [{"type": "web_search"}]}),
    both("a tool of a server", PATH, ADDER),
    both("a tool of a server, to be approved", PATH, ADDER | {"tools": [BOX | {"require_approval": "always"}]}),
    both("refused, too long", PATH, ASK | {"input": "word " * 12_000}),
    post("kept", PATH, ASK | {"input": [USER] * 3}, keep={"response": "id"}),
    get("got", f"{PATH}/<response>"),
    get("what was asked", f"{PATH}/<response>/input_items", keep={"item": "last_id"}),
    get("what was asked, a page", f"{PATH}/<response>/input_items?limit=2&order=asc"),
    get("what was asked, after the last", f"{PATH}/<response>/input_items?after=<item>"),
    get("refused, a page of nothing", f"{PATH}/<response>/input_items?limit=0"),
    get("an order that is none", f"{PATH}/<response>/input_items?order=up"),
    get("refused, after nobody", f"{PATH}/<response>/input_items?after=nobody"),
    both("gone on from", PATH, ASK | {"input": "More", "previous_response_id": "<response>"}),
    post("refused, cancelled when it is over", f"{PATH}/<response>/cancel", {}),
    delete("deleted", f"{PATH}/<response>"),
    get("refused, got when it is deleted", f"{PATH}/<response>"),
    delete("refused, deleted twice", f"{PATH}/<response>"),
    get("refused, items when it is deleted", f"{PATH}/<response>/input_items"),
    post("refused, cancelled when it is deleted", f"{PATH}/<response>/cancel", {}),
    post("not kept", PATH, ASK | {"store": False}, keep={"forgotten": "id"}),
    get("refused, not kept", f"{PATH}/<forgotten>"),
    post("tokens", f"{PATH}/input_tokens", {"model": "talker", "input": "Hello"}),
    post("tokens at the short path", "/responses/input_tokens", {"model": "talker", "input": "Hello"}),
    both("an answer at the short path", "/responses", {"model": "talker", "input": "Hello", "max_output_tokens": 6}),
    post("tokens with tools", f"{PATH}/input_tokens", {"model": "talker", "input": [USER], "tools": [TOOL]}),
    post("refused, tokens of nobody", f"{PATH}/input_tokens", {"model": "nobody", "input": "Hello"}),
    refused(
        PATH,
        ASK,
        {
            "unknown model": {"model": "nobody"},
            "missing input": {"input": ...},
            "no items": {"input": []},
            "an item that is a number": {"input": [5]},
            "unknown role": {"input": [{"role": "wizard", "content": "x"}]},
            "an image": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "a reference": {"input": [{"type": "item_reference", "id": "x"}]},
            "a result without a call": {"input": [USER, RESULT]},
            "an answer that is not kept": {"previous_response_id": "resp_nobody"},
            "in the background": {"background": True},
            "a conversation": {"conversation": "conv_1"},
            "truncation": {"truncation": "auto"},
            "no tokens": {"max_output_tokens": 0},
            "a schema without a schema": {"text": {"format": {"type": "json_schema", "name": "x"}}},
            "a choice that is none": {"tool_choice": "perhaps"},
            "a server without a name": {"tools": [{"type": "mcp"}]},
            "a server that is not allowed": {
                "tools": [{"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/mcp"}]
            },
            "an unknown server": {"tools": [{"type": "mcp", "server_label": "nobody"}]},
            "temperature below 0": {"temperature": -1},
        },
    ),
)
