"""The dialect of Woolly's older documents under /api: short bodies, error codes in words.

Clients of Ollama use two of the same paths and always name a model; clients of these documents never do, so a body with
`model` is Ollama's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from woolly.config.serving import Serving
from woolly.errors import WoollyError
from woolly.request import Completion, Request, Text
from woolly.server.dialects.base.bodies import length, samplings
from woolly.server.dialects.base.fields import notes, refuse
from woolly.server.dialects.base.shapes import Count, Number, Reason, Shape
from woolly.server.dialects.openai.embeddings import Inputs, embedded, read_inputs, shortest_of
from woolly.server.dialects.woolly.generation import (
    KNOWN,
    PROMPT_REFUSED,
    REFUSED,
    ChatBody,
    PromptBody,
    conversation,
    read_fields,
    wishes,
)
from woolly.server.generate.answering import Answering
from woolly.server.generate.counting import text_tokens
from woolly.server.http.errors import kind_of
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Body, Call, Dialect, Events, Generation, Head, Job, Query
from woolly.server.workers import Workers

MAX_TOKENS = 200

CODES = {
    "model_not_found": "MODEL_NOT_FOUND",
    "model_error": "MODEL_NOT_LOADED",
    "load_failed": "MODEL_LOAD_FAILED",
    "not_enough_memory": "OUT_OF_MEMORY",
    "generation_error": "GENERATION_FAILED",
    "authentication_failed": "UNAUTHORIZED",
    "rate_limit_exceeded": "RATE_LIMITED",
    "native_error": "INTERNAL_ERROR",
}
_ONE = {"n": lambda v: v == 1, "session_id": lambda v: v == ""}


class ShortCompletion(Shape):
    text: str
    tokens_per_second: Number
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: Reason


class ShortChat(Shape, kw_only=True):
    content: str
    role: Literal["assistant"] = "assistant"
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: Reason


class ShortToken(Shape):
    token: str
    id: Count


class ShortPiece(Shape):
    content: str


def read_generate(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Continue a prompt."""
    refuse(body, PROMPT_REFUSED | _ONE)
    fields = read_fields(PromptBody, body)
    request = Request(
        prompt=fields.prompt,
        sampling=samplings(fields, limits)[0],
        **length(fields.max_tokens, limits, MAX_TOKENS),
        **wishes(fields),
    )
    return Job((request,), fields, "", bool(fields.stream), notes(body, KNOWN))


def read_chat(body: Body, _path: Mapping[str, str], limits: Serving) -> Job:
    """Answer a conversation."""
    refuse(body, REFUSED | _ONE)
    fields = read_fields(ChatBody, body)
    request = Request(
        **conversation(fields, limits),
        sampling=samplings(fields, limits)[0],
        **length(fields.max_tokens, limits, MAX_TOKENS),
        **wishes(fields),
    )
    return Job((request,), fields, "", bool(fields.stream), notes(body, KNOWN))


def _figures(answer: Completion) -> dict[str, Any]:
    return {
        "tokens_generated": answer.usage.completion_tokens,
        "generation_time_ms": round(answer.timings.total_s * 1e3, 3),
        "finish_reason": answer.finish_reason,
    }


def render_generate(_job: Job, _head: Head, answers: list[Completion]) -> ShortCompletion:
    (answer,) = answers
    rate = round(answer.timings.answer_rate, 3)
    return ShortCompletion(text=answer.text, tokens_per_second=rate, **_figures(answer))


def render_chat(_job: Job, _head: Head, answers: list[Completion]) -> ShortChat:
    (answer,) = answers
    return ShortChat(content=answer.text, **_figures(answer))


async def frames_generate(_job: Job, _head: Head, events: Events) -> AsyncGenerator[ShortToken, None]:
    count = 0
    async for _, event in events:
        if isinstance(event, Text) and event.text:
            yield ShortToken(token=event.text, id=count)
            count += 1


async def frames_chat(_job: Job, _head: Head, events: Events) -> AsyncGenerator[ShortPiece, None]:
    async for _, event in events:
        if isinstance(event, Text) and event.text:
            yield ShortPiece(content=event.text)


class TextBody(Struct):
    text: str


class TokensBody(Struct):
    tokens: list[Annotated[int, Meta(ge=0, le=2**31 - 1)]]


class Tokens(Shape):
    tokens: list[Count]
    count: Count


class DecodedText(Shape):
    text: str


async def tokenize(limits: Serving, models: Models, workers: Workers, call: Call) -> Tokens:
    """The tokens of a text."""
    body: TextBody = call.body
    async with models.lease("") as loaded:
        ids = await text_tokens(loaded, workers, limits, call.caller, body.text, special=False, bos=False)
    return Tokens(tokens=ids, count=len(ids))


async def detokenize(models: Models, workers: Workers, call: Call) -> DecodedText:
    """The text of tokens."""
    body: TokensBody = call.body
    async with models.lease("") as loaded:
        text = await workers.run(call.caller.name, lambda: loaded.model.detokenize(body.tokens))
    return DecodedText(text=text)


class InputBody(Struct):
    input: Inputs
    model: str | None = None


class ShortEmbeddings(Shape):
    embeddings: list[list[float]]
    dimensions: Count
    model: str


async def embeddings(services: Answering, call: Call) -> ShortEmbeddings:
    """Embeddings of texts."""
    body: InputBody = call.body
    texts = read_inputs(body.input, services.settings.limits.inputs)
    result, vectors = await embedded(services, call, body.model or "", texts, write=shortest_of)
    return ShortEmbeddings(embeddings=vectors, dimensions=result.encoder.width, model=result.model)


class ShortDetails(Shape):
    message: str
    error_code: str
    suggestion: str


class ShortFault(Shape):
    message: str
    code: str
    details: ShortDetails


class ShortError(Shape):
    error: ShortFault


def error(problem: WoollyError, _id: str) -> ShortError:
    """The shape of the older documents: a message, and a code in capitals."""
    code = CODES.get(problem.code, "INVALID_REQUEST" if kind_of(problem).status < 500 else "INTERNAL_ERROR")
    details = ShortDetails(message=problem.message, error_code=code, suggestion=problem.suggestion)
    return ShortError(error=ShortFault(message=problem.message, code=code, details=details))


TAG = "Older documents"
ONE = frozenset(("model", "n", "stream_options", "session_id"))  # fields without use where there is one of all
DIALECT = Dialect(
    name="documents",
    routes=(
        Generation(
            "/api/generate",
            read_generate,
            render_generate,
            frames_generate,
            PromptBody,
            TAG,
            prefix="gen-",
            without=ONE,
        ),
        Generation("/api/chat", read_chat, render_chat, frames_chat, ChatBody, TAG, prefix="chat-", without=ONE),
        Query("POST", "/api/tokenize", tokenize, TAG, TextBody, errors=(404,)),
        Query("POST", "/api/detokenize", detokenize, TAG, TokensBody, errors=(404,)),
        Query("POST", "/api/embeddings", embeddings, TAG, InputBody, errors=(404,)),
    ),
    error=error,
    prefixes=("/api/generate", "/api/chat", "/api/tokenize", "/api/detokenize", "/api/embeddings"),
)
