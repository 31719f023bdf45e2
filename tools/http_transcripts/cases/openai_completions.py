"""OpenAI's completions of a prompt, and the routes that list models in its words."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import both, get, made_current, named, post, refused

PATH = "/v1/completions"
PROMPT: dict[str, Any] = {"model": "talker", "prompt": "Once upon", "max_tokens": 5, "temperature": 0}

CASES = named(
    "openai completions",
    both("an answer", PATH, PROMPT),
    made_current("talker"),
    both("the current model", PATH, {"prompt": "Once", "max_tokens": 3, "temperature": 0}),
    both("several prompts", PATH, PROMPT | {"prompt": ["Once", "upon"]}, unordered=True),
    both("two choices", PATH, PROMPT | {"n": 2, "seed": 1, "temperature": 1.0}, unordered=True),
    both("tokens", PATH, PROMPT | {"prompt": [70, 71, 72]}),
    both("lists of tokens", PATH, PROMPT | {"prompt": [[70, 71], [72]]}, unordered=True),
    both("likelihoods", PATH, PROMPT | {"logprobs": 2}),
    both("echo", PATH, PROMPT | {"echo": True}),
    both("echo with likelihoods", PATH, PROMPT | {"echo": True, "logprobs": 1}),
    post("refused, likelihoods of the prompt alone", PATH, PROMPT | {"echo": True, "logprobs": 1, "max_tokens": 0}),
    both("a gap", PATH, PROMPT | {"suffix": "a time"}),
    both("a stop text", PATH, PROMPT | {"stop": "w", "max_tokens": 20}),
    both("usage at the end", PATH, PROMPT | {"stream_options": {"include_usage": True}}),
    both("an adapter", PATH, PROMPT | {"lora": [{"id": 0, "scale": 0.5}]}),
    both("any JSON", PATH, PROMPT | {"response_format": {"type": "json_object"}, "max_tokens": 12}),
    refused(
        PATH,
        PROMPT,
        {
            "unknown model": {"model": "nobody"},
            "missing prompt": {"prompt": ...},
            "an empty list": {"prompt": []},
            "a number": {"prompt": 5},
            "a token that is none": {"prompt": [10**9]},
            "too long": {"prompt": "word " * 12_000},
            "too many prompts": {"prompt": ["x"] * 257},
            "too many likelihoods": {"logprobs": 21},
            "a gap in a model without one": {"model": "caller", "suffix": "x"},
            "best_of": {"best_of": 5},
            "temperature below 0": {"temperature": -1},
            "a model that ranks": {"model": "ranker"},
        },
    ),
    get("models", "/v1/models"),
    get("a model", "/v1/models/talker"),
    get("an alias", "/v1/models/gpt-4o"),
    get("a model by its file", "/v1/models/talker.gguf"),
    get("refused, a model that is not there", "/v1/models/nobody"),
    get("models of nobody", "/v1/models", server="empty"),
)
