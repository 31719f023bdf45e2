"""OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import HELLO, both, named, post, refused

PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {"model": "talker", "messages": HELLO, "max_tokens": 6, "temperature": 0}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 4}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {"type": "object", "properties": {"old": {"type": "boolean"}}, "required": ["old"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}
CALLER = CHAT | {"model": "caller", "tools": [TOOL], "max_tokens": 40}
MADE = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
ROUND = [
    *HELLO,
    {"role": "assistant", "content": None, "tool_calls": [MADE]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
]
LONG = [{"role": "user", "content": "word " * 12_000}]

CASES = named(
    "openai chat",
    both("an answer", PATH, CHAT),
    both("an answer that ends", PATH, CHAT | {"model": "thinker", "max_tokens": 40}),
    both("the default model", PATH, {key: value for key, value in CHAT.items() if key != "model"}),
    both("an alias", PATH, CHAT | {"model": "gpt-4o"}),
    both("usage at the end", PATH, CHAT | {"stream_options": {"include_usage": True}}),
    both("two choices", PATH, CHAT | {"n": 2, "temperature": 1.0, "seed": 1}, unordered=True),
    both("likelihoods", PATH, CHAT | {"logprobs": True, "top_logprobs": 2}),
    both("likelihoods without others", PATH, CHAT | {"logprobs": True}),
    both("all sampling fields", PATH, CHAT | {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 7}),
    both("penalties", PATH, CHAT | {"frequency_penalty": 0.5, "presence_penalty": 0.5, "logit_bias": {"300": -5}}),
    both("a stop text", PATH, CHAT | {"stop": ["w", "zz"], "max_tokens": 20}),
    both("thoughts", PATH, CHAT | {"model": "thinker", "max_tokens": 40, "reasoning_effort": "high"}),
    both("a tool is called", PATH, CALLER),
    both("a tool is called, with likelihoods", PATH, CALLER | {"logprobs": True}),
    both("a tool has to be called", PATH, CHAT | {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60}),
    both(
        "this tool has to be called",
        PATH,
        CHAT
        | {"tools": [TOOL], "max_tokens": 60}
        | {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
    ),
    both("no tool is wanted", PATH, CALLER | {"tool_choice": "none"}),
    both("one call at a time", PATH, CALLER | {"parallel_tool_calls": False}),
    both("the result of a tool", PATH, CALLER | {"messages": ROUND}),
    both("a tool of a provider", PATH, CALLER | {"tools": [{"type": "web_search"}, TOOL]}),
    both("JSON of a schema", PATH, CHAT | {"response_format": FORMAT, "max_tokens": 60}),
    both("any JSON", PATH, CHAT | {"response_format": {"type": "json_object"}, "max_tokens": 12}),
    both("plain text", PATH, CHAT | {"response_format": {"type": "text"}}),
    both("an adapter", PATH, CHAT | {"lora": {"pirate": 0.5}}),
    both("parts of text", PATH, CHAT | {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}),
    both("a system message", PATH, CHAT | {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]}),
    both("fields without effect", PATH, CHAT | {"gpu_layers": 3, "user": "ada", "store": True}),
    both("more tokens than fit", PATH, CHAT | {"model": "thinker", "max_tokens": 100_000}),
    post("max_completion_tokens", PATH, CHAT | {"max_tokens": None, "max_completion_tokens": 3}),
    post("the digest of the model", PATH, CHAT, headers={"X-Woolly-Model": "1"}),
    post("a seed of the header", PATH, CHAT | {"temperature": 1.0}, headers={"X-Woolly-Seed": "5"}),
    post("a stream that goes on", PATH, CHAT | {"stream": True, "seed": 1}, headers={"Last-Event-ID": "2"}),
    post("an id of the caller", PATH, CHAT, headers={"X-Request-Id": "my-id"}),
    post("a page of this machine", PATH, CHAT, headers={"Origin": "http://localhost:5173"}),
    refused(
        PATH,
        CHAT,
        {
            "unknown model": {"model": "nobody"},
            "unknown model, streamed": {"model": "nobody", "stream": True},
            "a model that embeds": {"model": "encoder"},
            "a broken model": {"model": "broken"},
            "no messages": {"messages": []},
            "missing messages": {"messages": ...},
            "messages of another type": {"messages": "Hello"},
            "a message that is a text": {"messages": ["Hello"]},
            "unknown role": {"messages": [{"role": "wizard", "content": "x"}]},
            "missing role": {"messages": [{"content": "x"}]},
            "an image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "too long": {"messages": LONG},
            "too long, streamed": {"messages": LONG, "stream": True},
            "no tokens": {"max_tokens": 0},
            "tokens of another type": {"max_tokens": "six"},
            "temperature below 0": {"temperature": -1},
            "temperature that is a text": {"temperature": "hot"},
            "top_p above 1": {"top_p": 1.5},
            "too many choices": {"n": 17},
            "no choices": {"n": 0},
            "too many likelihoods": {"logprobs": True, "top_logprobs": 21},
            "likelihoods that were not asked for": {"top_logprobs": 2},
            "an empty stop": {"stop": ""},
            "too many stops": {"stop": list("abcdefghijklmnopqrstu")},
            "bias of no token": {"logit_bias": {"x": 1}},
            "stream that is a text": {"stream": "yes"},
            "unknown format": {"response_format": {"type": "yaml"}},
            "a schema without a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}},
            "a schema that cannot be": {
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "sheep"}}}
            },
            "a tool without a name": {"tools": [{"type": "function", "function": {}}]},
            "a tool with a wrong name": {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "a choice that is no tool": {
                "tools": [TOOL],
                "tool_choice": {"type": "function", "function": {"name": "fly"}},
            },
            "a choice without tools": {"tool_choice": "required"},
            "a result without a call": {"messages": [*HELLO, {"role": "tool", "content": "x"}]},
            "an unknown adapter": {"lora": {"nobody": 1}},
            "an adapter that is a text": {"lora": "pirate"},
            "seed of another type": {"seed": "x"},
            "unknown effort": {"reasoning_effort": 5},
        },
    ),
    post("refused, unknown field", PATH, CHAT | {"no_such_field": 3}, headers={"X-Woolly-Strict": "1"}),
    post("refused, a seed of the header", PATH, CHAT, headers={"X-Woolly-Seed": "x"}),
    post("refused, too many messages", PATH, CHAT | {"messages": HELLO * 3}, server="small"),
    post("refused, nothing is loaded", PATH, {"messages": HELLO}, server="empty"),
    both("the same at its short path", "/chat/completions", CHAT),
    *(post(f"tokens at {path}", f"{path}/input_tokens", {"messages": HELLO}) for path in (PATH, "/chat/completions")),
    post("after all of them", PATH, CHAT),
)
