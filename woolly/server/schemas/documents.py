"""The dialect of older documents: answers, events of a stream, tokens, errors."""

from __future__ import annotations

from woolly.server.dialects.shapes import Count, Shape


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
