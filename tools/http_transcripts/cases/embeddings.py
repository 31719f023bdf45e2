"""Embeddings and rankings in OpenAI's, Jina's and Cohere's words."""

from __future__ import annotations

from typing import Any

from tools.http_transcripts.case import named, post, refused

PATH = "/v1/embeddings"
EMBED: dict[str, Any] = {"model": "encoder", "input": "hello world"}
RANK: dict[str, Any] = {"model": "ranker", "query": "hello", "documents": ["hello world", "ab ! hello"]}

CASES = named(
    "embeddings",
    post("a text", PATH, EMBED),
    post("texts", PATH, EMBED | {"input": ["hello world", "ab ! hello"]}),
    post("tokens", PATH, EMBED | {"input": [5, 6]}),
    post("lists of tokens", PATH, EMBED | {"input": [[5, 6], [7]]}),
    post("a text among tokens", PATH, EMBED | {"input": [5, "hello"]}),
    post("texts and lists of tokens", PATH, EMBED | {"input": ["hello", [5, 6]]}),
    post("base64", PATH, EMBED | {"encoding_format": "base64"}),
    post("the first dimensions", PATH, EMBED | {"dimensions": 8}),
    post("cut", PATH, EMBED | {"input": "hello " * 70, "truncate": True}),
    post("a model that chats", PATH, EMBED | {"model": "talker"}),
    refused(
        PATH,
        EMBED,
        {
            "unknown model": {"model": "nobody"},
            "missing input": {"input": ...},
            "an empty list": {"input": []},
            "an empty text": {"input": ""},
            "a list among tokens": {"input": [5, ["hello"]]},
            "too long": {"input": "hello " * 70},
            "unknown encoding": {"encoding_format": "hex"},
            "no dimensions": {"dimensions": 0},
            "too many dimensions": {"dimensions": 10**6},
            "a model that ranks": {"model": "ranker"},
        },
    ),
    *(post(f"a ranking at {path}", path, RANK) for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")),
    post("a ranking at /v2/rerank", "/v2/rerank", RANK),
    post("texts, ranked as a bare list", "/rerank", {"model": "ranker", "query": "hello", "texts": ["world", "hello"]}),
    post("a ranking with its documents", "/v1/rerank", RANK | {"return_documents": True}),
    post("the best of a ranking", "/v1/rerank", RANK | {"top_n": 1}),
    post("documents as objects", "/v1/rerank", RANK | {"documents": [{"text": "hello"}, {"text": "world"}]}),
    post("refused, no documents", "/v1/rerank", RANK | {"documents": []}),
    post("refused, a ranking of nobody", "/v1/rerank", RANK | {"model": "nobody"}),
    post("refused, a ranking by a model that embeds", "/v1/rerank", RANK | {"model": "encoder"}),
    post("refused, a ranking without a query", "/v1/rerank", {"model": "ranker", "documents": ["hello"]}),
    post("refused, the best none", "/v1/rerank", RANK | {"top_n": 0}),
)
