"""OpenAI's dialect under /v1, with OpenAI's bodies and errors."""

from __future__ import annotations

from woolly.errors import WoollyError
from woolly.server.dialects.asks import load_failed, load_model, openai_model, openai_models
from woolly.server.dialects.openai_chat import CHAT
from woolly.server.dialects.openai_completions import COMPLETIONS
from woolly.server.dialects.shapes import Shape
from woolly.server.door import Dialect, Query, Reply
from woolly.server.errors import headers, row


class OpenAIFault(Shape):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Shape):
    error: OpenAIFault


def error(problem: WoollyError, _id: str) -> Reply:
    """OpenAI's shape: a message, a type, the parameter and a code."""
    what = row(problem)
    param = problem.facts.get("param")
    fault = OpenAIFault(
        message=str(problem),
        type=what.openai,
        param=str(param) if param else None,
        code="context_length_exceeded" if problem.code == "context_error" else problem.code,
    )
    return Reply(OpenAIError(error=fault), what.status, headers=headers(problem))


DIALECT = Dialect(
    name="openai",
    doors=(
        CHAT,
        COMPLETIONS,
        Query("GET", "/v1/models", openai_models),
        Query("POST", "/v1/models/load", load_model, access="key", failed=load_failed),
        Query("GET", "/v1/models/{name:path}", openai_model),
    ),
    error=error,
    prefixes=("/v1/",),
)
