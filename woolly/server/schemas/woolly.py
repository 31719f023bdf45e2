"""Woolly's own dialect: answers, events of a stream, errors."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from woolly.server.dialects.shapes import Count, Shape, Status


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
