"""Anthropic's dialect: /v1/messages, whole or streamed, and the count of a conversation's tokens."""

from __future__ import annotations

from woolly.config.serving import Serving
from woolly.errors import WoollyError
from woolly.request import Request
from woolly.server.dialects.anthropic.answers import frames, render
from woolly.server.dialects.anthropic.reading import conversation_of, read
from woolly.server.dialects.anthropic.shapes import (
    AnthropicBody,
    AnthropicError,
    AnthropicFault,
    AnthropicModel,
    AnthropicModels,
    AnthropicPrompt,
    TokenCount,
)
from woolly.server.dialects.base.shapes import time_text
from woolly.server.generate.counting import prompt_tokens
from woolly.server.http.errors import kind_of
from woolly.server.http.framing import NAMED
from woolly.server.models.lifecycle import Models
from woolly.server.models.records import ModelRecord
from woolly.server.routes import Call, Dialect, Generation, Query
from woolly.server.workers import Workers

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def models(records: list[ModelRecord]) -> AnthropicModels:
    """All models, as Anthropic lists them."""
    ids = [record.id for record in records]
    rows = [AnthropicModel(id=row.id, display_name=row.name, created_at=time_text(row.created)) for row in records]
    return AnthropicModels(data=rows, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None)


async def count_tokens(limits: Serving, models: Models, workers: Workers, call: Call) -> TokenCount:
    """How many tokens a conversation has."""
    fields: AnthropicPrompt = call.body
    request = Request(**conversation_of(fields, limits))
    return TokenCount(input_tokens=await prompt_tokens(models, workers, call.caller, fields.model, request))


def error(problem: WoollyError, id_: str) -> AnthropicError:
    """Anthropic's shape: a type and a message. Claude Code reads both numbers out of the error about the context."""
    status, message = kind_of(problem).status, str(problem)
    if problem.code == "context_error":
        prompt, limit = problem.facts["prompt"], problem.facts["limit"]
        message = f"prompt is too long: {prompt} tokens > {limit} maximum"
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return AnthropicError(error=AnthropicFault(type=kind, message=message), request_id=id_)


TAG = "Anthropic"
MESSAGES = Generation("/v1/messages", read, render, frames, AnthropicBody, TAG, prefix="msg_", framing=NAMED)
DIALECT = Dialect(
    name="anthropic",
    routes=(
        MESSAGES,
        Query("POST", "/v1/messages/count_tokens", count_tokens, TAG, AnthropicPrompt, errors=(404, 504)),
    ),
    error=error,
    prefixes=("/v1/messages",),
    id_header="request-id",
)
