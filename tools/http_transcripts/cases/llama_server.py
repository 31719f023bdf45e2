"""llama-server's routes."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import HELLO, both, get, made_current, named, post, refused
from tools.http_transcripts.cases.openai_chat import SCHEMA, TOOL

PATH = "/completion"
PROMPT: dict[str, Any] = {"model": "talker", "prompt": "Once upon", "n_predict": 5, "temperature": 0}
GAP: dict[str, Any] = {
    "model": "talker",
    "input_prefix": "Once",
    "input_suffix": "a time",
    "n_predict": 4,
    "temperature": 0,
}

CASES = named(
    "llama-server",
    made_current("talker"),
    both("a prompt", PATH, PROMPT),
    both("a prompt at its other path", "/completions", PROMPT),
    both("tokens and likelihoods", PATH, PROMPT | {"n_probs": 2, "return_tokens": True}),
    both("a stop text", PATH, PROMPT | {"stop": ["w"], "n_predict": 20}),
    both("an answer that ends", PATH, PROMPT | {"model": "thinker", "prompt": "x\n", "n_predict": 40}),
    both("a schema", PATH, PROMPT | {"json_schema": SCHEMA, "n_predict": 60}),
    both("a grammar", PATH, PROMPT | {"grammar": 'root ::= "yes" | "no"'}),
    both("tokens as a prompt", PATH, PROMPT | {"prompt": [70, 71]}),
    both("an adapter", PATH, PROMPT | {"lora": [{"id": 0, "scale": 0.5}]}),
    post("nothing to predict", PATH, PROMPT | {"n_predict": 0}),
    both("a gap", "/infill", GAP),
    post("a gap with files", "/infill", GAP | {"input_extra": [{"filename": "f", "text": "x"}], "prompt": "u"}),
    post("tokens", "/tokenize", {"content": "Once upon"}, keep={"ids": "tokens"}),
    post("tokens with their pieces", "/tokenize", {"content": "Once upon", "with_pieces": True}),
    post("a text", "/detokenize", {"tokens": "<ids>"}),
    post("a prompt of a chat", "/apply-template", {"messages": HELLO}),
    post("a prompt of a chat with tools", "/apply-template", {"messages": HELLO, "tools": [TOOL]}),
    get("properties", "/props"),
    get("slots", "/slots"),
    get("slots that are free", "/slots?fail_on_no_slot=1"),
    refused(
        PATH,
        PROMPT,
        {
            "unknown model": {"model": "nobody"},
            "missing prompt": {"prompt": ...},
            "a prompt that is mixed": {"prompt": ["x", 1]},
            "tokens of another type": {"n_predict": "all"},
            "ignore_eos": {"ignore_eos": True},
            "a grammar and a schema": {"grammar": "x", "json_schema": {}},
            "a grammar that is none": {"grammar": "root :="},
            "too many likelihoods": {"n_probs": 21},
            "several": {"n_cmpl": 2},
        },
    ),
    post("refused, a gap in a model without one", "/infill", GAP | {"model": "caller"}),
    post("refused, no text", "/tokenize", {}),
    post("refused, a token that is none", "/detokenize", {"tokens": [10**9]}),
    post("refused, a prompt of nothing", "/apply-template", {"messages": []}),
    post("an embedding", "/embedding", {"model": "encoder", "content": "hello"}),
    post("embeddings", "/embeddings", {"model": "encoder", "input": ["hello", "world"]}),
    post("refused, an embedding of nothing", "/embedding", {"model": "encoder"}),
    get("refused, properties of nothing", "/props", server="empty"),
    get("refused, slots of nothing", "/slots", server="empty"),
)
