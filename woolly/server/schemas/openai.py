"""OpenAI's dialect: models, answers, events of a stream, errors."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from woolly.server.schemas.base import Count, Delta, Reason, Shape, Usage


class OpenAIModel(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(Shape):
    object: Literal["list"]
    data: list[OpenAIModel]


class OpenAIMessage(Shape):
    role: Literal["assistant"]
    content: str
    refusal: None


class Likely(Shape):
    token: str
    logprob: float
    bytes: list[Count]


class TokenLikely(Shape):
    token: str
    logprob: float
    bytes: list[Count]
    top_logprobs: list[Likely]


class ChatLogprobs(Shape):
    content: list[TokenLikely]
    refusal: None


class OpenAIChatChoice(Shape):
    index: Count
    message: OpenAIMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class OpenAIChat(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[OpenAIChatChoice]
    usage: Usage


class TextLogprobs(Shape):
    """Columns, a row for each token; a prompt's first token has no likelihood."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class OpenAITextChoice(Shape):
    index: Count
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason


class OpenAICompletion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[OpenAITextChoice]
    usage: Usage


class OpenAIChatPiece(Shape):
    index: Count
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Reason | None


class OpenAIChatChunk(Shape):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[OpenAIChatPiece]
    usage: Usage | UnsetType | None = UNSET


class OpenAITextPiece(Shape):
    index: Count
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason | None


class OpenAITextChunk(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[OpenAITextPiece]
    usage: Usage | UnsetType | None = UNSET


class OpenAIFault(Shape):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIError(Shape):
    error: OpenAIFault
