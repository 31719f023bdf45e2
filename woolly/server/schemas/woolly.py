"""Woolly's own dialect: answers, events of a stream, errors."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from woolly.server.schemas.base import Count, Delta, Number, Reason, Shape, Status, Usage


class AssistantMessage(Shape):
    role: Literal["assistant"]
    content: str


class Timings(Shape):
    prompt_ms: Number
    predicted_ms: Number
    ttft_ms: Number
    tokens_per_second: Number


class WoollyTextChoice(Shape):
    index: Count
    text: str
    message: None
    finish_reason: Reason
    logprobs: None


class WoollyCompletion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[WoollyTextChoice]
    usage: Usage
    timings: Timings
    seed: Count
    tokens: list[Count] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class WoollyChatChoice(Shape):
    index: Count
    text: None
    message: AssistantMessage
    finish_reason: Reason
    logprobs: None


class WoollyChat(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[WoollyChatChoice]
    usage: Usage
    timings: Timings
    seed: Count
    notes: list[str] | UnsetType = UNSET


class WoollyBatch(Shape):
    object: Literal["list"]
    batch_size: Count
    data: list[WoollyCompletion]
    usage: Usage


class WoollyChatPiece(Shape):
    index: Count
    delta: Delta
    finish_reason: Reason | None


class WoollyChatChunk(Shape):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[WoollyChatPiece]
    usage: Usage | UnsetType = UNSET


class WoollyTextPiece(Shape):
    index: Count
    delta: Delta
    text: str
    finish_reason: Reason | None


class WoollyTextChunk(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[WoollyTextPiece]
    usage: Usage | UnsetType = UNSET


class WoollyFault(Shape):
    type: str
    message: str
    code: Status
    suggestion: str
    timestamp: Count
    request_id: str
    details: dict[str, Any]
    available_models: list[str] | UnsetType = UNSET


class WoollyError(Shape):
    error: WoollyFault
