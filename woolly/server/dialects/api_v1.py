"""Woolly's own dialect under /api/v1, with the aliases that older clients know."""

from __future__ import annotations

import time

from woolly.errors import WoollyError
from woolly.server.dialects import api_v1_generation, benchmarks, describing, figures
from woolly.server.dialects.asks import (
    bare_models,
    empty_list,
    health,
    live,
    load_failed,
    load_model,
    make_token,
    not_enabled,
    ready,
    unload_model,
    validate_token,
    woolly_model,
    woolly_models,
)
from woolly.server.door import Access, Dialect, Query, Reply
from woolly.server.errors import headers, row

MCP_CALLS: dict[str, Access] = {
    "/api/v1/mcp/tools/{name:path}": "key",
    "/api/v1/mcp/prompts/{name:path}": "anonymous",
    "/api/v1/mcp/sessions": "anonymous",
    "/api/v1/mcp/chat": "anonymous",
}


def error(problem: WoollyError, request_id: str) -> Reply:
    """Woolly's shape: the status again, what to do, and the facts."""
    what = row(problem)
    facts: dict[str, object] = {
        name: value for name, value in problem.facts.items() if isinstance(value, str | int | list)
    }
    details = facts | {"message": problem.message, "error_code": facts.get("error_code") or problem.code.upper()}
    if problem.code == "context_error":
        details |= {"current_length": facts.get("prompt"), "max_length": facts.get("limit")}
    body = {
        "type": what.woolly,
        "message": problem.message,
        "code": what.status,
        "suggestion": problem.suggestion,
        "timestamp": int(time.time()),
        "request_id": request_id,
        "details": details,
    }
    if "available_models" in facts:
        body["available_models"] = facts["available_models"]
    return Reply({"error": body}, what.status, headers=headers(problem))


DIALECT = Dialect(
    name="woolly",
    doors=(
        *(Query("GET", path, health, access="open") for path in ("/health", "/api/v1/health")),
        *(Query("GET", path, ready, access="open") for path in ("/health/ready", "/api/v1/health/ready")),
        *(Query("GET", path, live, access="open") for path in ("/health/live", "/api/v1/health/live")),
        *api_v1_generation.DOORS,
        Query("GET", "/api/v1/performance/stats", figures.stats),
        Query("POST", "/api/v1/performance/benchmark", benchmarks.benchmark, access="key"),
        Query("GET", "/api/v1/performance/benchmark", benchmarks.benchmarks),
        Query("GET", "/api/v1/metrics", figures.metrics),
        Query("GET", "/metrics", figures.prometheus),
        Query("GET", "/openapi.json", describing.openapi, access="open"),
        Query("GET", "/docs", describing.docs, access="open"),
        Query("GET", "/api/v1/debug/engine", figures.engine, access="key"),
        Query("POST", "/api/v1/auth/token", make_token, access="open"),
        Query("POST", "/api/v1/auth/validate", validate_token, access="open"),
        *(Query("GET", f"/api/v1/mcp/{what}", empty_list) for what in ("tools", "resources", "prompts")),
        *(Query("POST", path, not_enabled, access=access) for path, access in MCP_CALLS.items()),
        Query("GET", "/api/v1/models", woolly_models),
        Query("GET", "/api/models", bare_models),
        Query("GET", "/models", bare_models),
        *(
            Query("POST", path, load_model, access="key", failed=load_failed)
            for path in ("/api/v1/models/load", "/api/models/load", "/api/v1/models/{name:path}/load")
        ),
        *(
            Query("POST", path, unload_model, access="key")
            for path in ("/api/models/unload", "/api/v1/models/{name:path}/unload")
        ),
        Query("GET", "/api/v1/models/{name:path}", woolly_model),
    ),
    error=error,
    prefixes=("/",),
)
