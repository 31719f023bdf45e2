"""The dialect of older documents: answers, events of a stream, tokens, errors."""

from __future__ import annotations

from typing import Literal

from woolly.server.schemas.base import Count, Number, Reason, Shape


class ShortCompletion(Shape):
    text: str
    tokens_per_second: Number
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: Reason


class ShortChat(Shape):
    content: str
    role: Literal["assistant"]
    tokens_generated: Count
    generation_time_ms: Number
    finish_reason: Reason


class ShortToken(Shape):
    token: str
    id: Count


class ShortPiece(Shape):
    content: str


class Tokens(Shape):
    tokens: list[Count]
    count: Count


class DecodedText(Shape):
    text: str


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
