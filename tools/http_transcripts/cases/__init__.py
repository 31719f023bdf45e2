"""All cases, in the order in which they are asked: later ones refer to what earlier ones have kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tools.http_transcripts.case import AnyCase, Case
from tools.http_transcripts.cases import (
    access,
    anthropic,
    batches,
    embeddings,
    figures,
    fleet,
    llama_server,
    mcp,
    models,
    ollama,
    openai_chat,
    openai_completions,
    responses,
    sessions,
    sockets,
    woolly,
)

CASES: tuple[AnyCase, ...] = (
    *openai_chat.CASES,
    *openai_completions.CASES,
    *responses.CASES,
    *embeddings.CASES,
    *batches.CASES,
    *anthropic.CASES,
    *ollama.CASES,
    *llama_server.CASES,
    *woolly.CASES,
    *sessions.CASES,
    *mcp.CASES,
    *sockets.CASES,
    *access.CASES,
    *fleet.CASES,
    *figures.CASES,
    *models.CASES,  # last: it deletes some
)


def without_case(document: dict[str, Any]) -> Iterator[str]:
    """The routes of an OpenAPI document that no case asks, as `GET /health`."""
    asked = {(case.method, case.path.partition("?")[0]) for case in CASES if isinstance(case, Case)}
    for path, methods in document["paths"].items():
        pattern = re.compile(re.sub(r"\\{[^}]*\\}", ".+", re.escape(path)))
        for method in map(str.upper, methods):
            if not any(method == other and pattern.fullmatch(where) for other, where in asked):
                yield f"{method} {path}"
