"""What all shapes are made of."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Status = Annotated[int, Meta(ge=400, le=599)]
Reason = Literal["stop", "length"]


class Shape(Struct, forbid_unknown_fields=True, kw_only=True):
    """All shapes are closed: a field that is not described is a mistake."""


class CachedTokens(Shape):
    cached_tokens: Count


class Usage(Shape):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens


class Delta(Shape):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
