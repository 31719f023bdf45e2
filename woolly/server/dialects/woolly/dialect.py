"""Woolly's own dialect under /api/v1, with the aliases that older clients know."""

from __future__ import annotations

import time
from typing import Any

from msgspec import UNSET, UnsetType

from woolly.errors import WoollyError
from woolly.server.dialects.base.shapes import Count, Shape, Status
from woolly.server.dialects.woolly import describing, figures, generation, health, lora, mcp, models, sessions
from woolly.server.http.errors import kind_of
from woolly.server.routes import Dialect


class WoollyFault(Shape):
    type: str
    message: str
    code: Status
    suggestion: str
    timestamp: Count
    request_id: str
    details: dict[str, Any]
    available_models: list[str] | UnsetType = UNSET


class ErrorBody(Shape):
    error: WoollyFault


def error(problem: WoollyError, request_id: str) -> ErrorBody:
    """Woolly's shape: the status again, what to do, and the facts."""
    what = kind_of(problem)
    facts: dict[str, Any] = {
        name: value for name, value in problem.facts.items() if isinstance(value, str | int | list)
    }
    details = facts | {"message": problem.message, "error_code": facts.get("error_code") or problem.code.upper()}
    if problem.code == "context_error":
        details |= {"current_length": facts.get("prompt"), "max_length": facts.get("limit")}
    fault = WoollyFault(
        type=what.woolly,
        message=problem.message,
        code=what.status,
        suggestion=problem.suggestion,
        timestamp=int(time.time()),
        request_id=request_id,
        details=details,
        available_models=facts.get("available_models", UNSET),
    )
    return ErrorBody(error=fault)


DIALECT = Dialect(
    name="woolly",
    routes=(
        *health.ROUTES,
        *generation.ROUTES,
        *figures.ROUTES,
        *describing.ROUTES,
        *mcp.ROUTES,
        *sessions.ROUTES,
        *models.ROUTES,
        *lora.ROUTES,
    ),
    error=error,
    prefixes=("/",),
)
