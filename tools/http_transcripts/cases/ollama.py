"""Ollama's routes, and Woolly's older documents at the same paths."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import HELLO, both, delete, get, named, post, refused
from tools.http_transcripts.cases.openai_chat import SCHEMA, TOOL

OPTIONS = {"num_predict": 5, "temperature": 0}
CHAT: dict[str, Any] = {"model": "talker", "messages": HELLO, "options": OPTIONS}
PROMPT: dict[str, Any] = {"model": "talker", "prompt": "Once upon", "options": OPTIONS}
CALLED = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}
ROUND = [
    *HELLO,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [CALLED],
    },
    {"role": "tool", "content": "cold"},
]
MORE = OPTIONS | {"num_predict": 40}

CASES = named(
    "ollama",
    both("a chat", "/api/chat", CHAT),
    post("a chat streams unless told not to", "/api/chat", CHAT),
    both("a chat that ends", "/api/chat", CHAT | {"model": "thinker", "options": MORE}),
    both("a chat with thoughts", "/api/chat", CHAT | {"model": "thinker", "think": True, "options": MORE}),
    both("a chat without thoughts", "/api/chat", CHAT | {"model": "thinker", "think": False, "options": MORE}),
    both("refused, thoughts where there are none", "/api/chat", CHAT | {"think": True}),
    both("a chat that calls", "/api/chat", CHAT | {"model": "caller", "tools": [TOOL], "options": MORE}),
    both("a chat with a result", "/api/chat", CHAT | {"model": "caller", "messages": ROUND, "options": MORE}),
    both("a chat with a schema", "/api/chat", CHAT | {"format": SCHEMA, "options": OPTIONS | {"num_predict": 60}}),
    both("a chat with likelihoods", "/api/chat", CHAT | {"logprobs": True, "top_logprobs": 2}),
    both("a chat with a name that ends with latest", "/api/chat", CHAT | {"model": "talker:latest"}),
    both("a chat with options without effect", "/api/chat", CHAT | {"options": OPTIONS | {"num_gpu": 1}}),
    both("a prompt", "/api/generate", PROMPT),
    both("a raw prompt", "/api/generate", PROMPT | {"raw": True}),
    both("a prompt with a system text", "/api/generate", PROMPT | {"system": "Be brief."}),
    both("a gap", "/api/generate", PROMPT | {"suffix": "a time"}),
    both("JSON", "/api/generate", PROMPT | {"format": "json"}),
    post("a model is loaded", "/api/generate", {"model": "spare"}),
    post("a model is loaded by a chat", "/api/chat", {"model": "spare"}),
    get("what is loaded", "/api/ps"),
    post("a model is unloaded", "/api/generate", {"model": "spare", "keep_alive": 0}),
    post("a model stays for a while", "/api/chat", CHAT | {"stream": False, "keep_alive": "5m"}),
    get("version", "/api/version"),
    get("models", "/api/tags"),
    post("a model", "/api/show", {"model": "talker"}),
    post("a model by its other field", "/api/show", {"name": "talker:latest"}),
    post("a model with everything", "/api/show", {"model": "encoder", "verbose": True}),
    post("embeddings", "/api/embed", {"model": "encoder", "input": ["hello world", "hello"]}),
    post("an embedding", "/api/embed", {"model": "encoder", "input": "hello world", "dimensions": 8}),
    post("an embedding of the older route", "/api/embeddings", {"model": "encoder", "prompt": "hello world"}),
    both("refused, a download", "/api/pull", {"model": "hf.co/owner/repo"}),
    post("refused, a download of nothing", "/api/pull", {}),
    post("refused, a copy", "/api/copy", {"source": "talker", "destination": "x"}),
    post("refused, a copy of nobody", "/api/copy", {"source": "nobody", "destination": "x"}),
    post("refused, made", "/api/create", {"model": "x"}),
    post("refused, pushed", "/api/push", {"model": "x"}),
    delete("refused, deleted though not there", "/api/delete", {"model": "nobody"}),
    delete("refused, deleted without leave", "/api/delete", {"model": "talker"}, server="small"),
    post("refused, downloaded without leave", "/api/pull", {"model": "hf.co/o/r", "stream": False}, server="small"),
    post("refused, a blob", "/api/blobs/sha256:00", {}),
    post("refused, a model that is not there", "/api/show", {"model": "nobody"}),
    post("refused, no model", "/api/show", {}),
    refused(
        "/api/chat",
        CHAT,
        {
            "unknown model": {"model": "nobody"},
            "messages of another type": {"messages": "Hello"},
            "unknown role": {"messages": [{"role": "wizard", "content": "x"}]},
            "an image": {"messages": [{"role": "user", "content": "x", "images": ["AA=="]}]},
            "an option of another type": {"options": {"temperature": "hot"}},
            "options of another type": {"options": 5},
            "a larger context": {"options": {"num_ctx": 99_999}},
            "an option that would act": {"options": {"tfs_z": 0.5}},
            "unknown format": {"format": "yaml"},
            "a template": {"template": "{{ .Prompt }}"},
            "a time that is none": {"keep_alive": "soon"},
            "a model that embeds": {"model": "encoder"},
            "too long": {"messages": [{"role": "user", "content": "word " * 12_000}], "stream": True},
        },
    ),
    post("refused, raw with a system text", "/api/generate", PROMPT | {"raw": True, "system": "x"}),
    post("refused, a context", "/api/generate", PROMPT | {"context": [1]}),
    post("refused, an embedding of nothing", "/api/embed", {"model": "encoder"}),
    post("refused, an embedding of nobody", "/api/embed", {"model": "nobody", "input": "x"}),
) + named(
    "older documents",
    both("a prompt", "/api/generate", {"prompt": "Once", "max_tokens": 4, "temperature": 0}),
    both("a chat", "/api/chat", {"messages": HELLO, "max_tokens": 4, "temperature": 0}),
    post("tokens", "/api/tokenize", {"text": "Hello there"}, keep={"tokens": "tokens"}),
    post("a text", "/api/detokenize", {"tokens": "<tokens>"}),
    post("an embedding", "/api/embeddings", {"input": "hello world", "model": "encoder"}),
    post("refused, no text", "/api/tokenize", {}),
    post("refused, a token that is none", "/api/detokenize", {"tokens": [10**9]}),
    post("an empty prompt", "/api/generate", {"prompt": "  "}),
    post("refused, no messages", "/api/chat", {"messages": []}),
)
