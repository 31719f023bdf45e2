"""From an error's stable code to the status of HTTP and the type that each dialect calls it by. One table.

429 tells a caller that a limit is reached which passes by itself: its own, or that of the line. 503 tells everybody
that the server cannot take work now: it loads, ends, or has no memory. Both say when to come again.
"""

from __future__ import annotations

from dataclasses import dataclass

from woolly.errors import BusyError, RequestError, WoollyError
from woolly.server.door import Reply


@dataclass(frozen=True, slots=True)
class Row:
    status: int
    woolly: str  # `type` in Woolly's dialect
    openai: str  # `type` in OpenAI's


_INVALID = "invalid_request_error"
_SERVER = "server_error"

ROWS = {
    "invalid_request": Row(400, "invalid_request", _INVALID),
    "validation_error": Row(400, "validation_error", _INVALID),
    "json_parse_error": Row(400, "json_parse_error", _INVALID),
    "context_error": Row(400, "context_error", _INVALID),
    "previous_response_not_found": Row(400, "invalid_request", _INVALID),
    "unsupported": Row(400, "invalid_request", _INVALID),
    "model_error": Row(400, "model_error", _INVALID),
    "file_error": Row(400, "model_error", _INVALID),
    "authentication_failed": Row(401, "authentication_failed", "authentication_error"),
    "access_denied": Row(403, "access_denied", "permission_error"),
    "not_found": Row(404, "not_found", _INVALID),
    "model_not_found": Row(404, "model_not_found", _INVALID),
    "session_not_found": Row(404, "session_not_found", _INVALID),
    "method_not_allowed": Row(405, "method_not_allowed", _INVALID),
    "request_timeout": Row(408, "timeout", _INVALID),
    "conflict": Row(409, "conflict", _INVALID),
    "payload_too_large": Row(413, "payload_too_large", _INVALID),
    "uri_too_long": Row(414, "invalid_request", _INVALID),
    "unsupported_media_type": Row(415, "invalid_request", _INVALID),
    "rate_limit_exceeded": Row(429, "rate_limit_exceeded", "rate_limit_error"),
    "headers_too_large": Row(431, "invalid_request", _INVALID),
    "native_error": Row(500, "internal_server_error", _SERVER),
    "generation_error": Row(500, "generation_error", _SERVER),
    "disk_error": Row(500, "io_error", _SERVER),
    "disk_full": Row(500, "io_error", _SERVER),
    "mcp_protocol_error": Row(502, "mcp_protocol_error", _SERVER),
    "download_error": Row(502, "download_error", _SERVER),
    "busy": Row(503, "overloaded", _SERVER),
    "overloaded": Row(503, "overloaded", _SERVER),
    "address_in_use": Row(503, "resource_unavailable", _SERVER),
    "not_enough_memory": Row(503, "resource_unavailable", _SERVER),
    "timeout": Row(504, "timeout", _SERVER),
}
INTERNAL = Row(500, "internal_server_error", _SERVER)


def row(error: WoollyError) -> Row:
    return ROWS.get(error.code, INTERNAL)


def key_needed() -> RequestError:
    return RequestError(
        "a valid API key is needed",
        suggestion="send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
        code="authentication_failed",
    )


def too_many(what: str, wait_s: int) -> BusyError:
    """A limit of the caller, or of the line that it shares with others, is reached: ask again after so many seconds."""
    return BusyError(what, suggestion=f"try again in {wait_s} s", code="rate_limit_exceeded", retry_after=str(wait_s))


def reply(error: WoollyError, body: object) -> Reply[object]:
    """An error with its status and headers; the body has the dialect's shape."""
    return Reply(body, row(error).status, headers=_headers(error))


def _headers(error: WoollyError) -> dict[str, str]:
    """When to come again, which methods there are."""
    made: dict[str, str] = {}
    if "retry_after" in error.facts:
        made["retry-after"] = str(error.facts["retry_after"])
    elif row(error).status in (429, 503):
        made["retry-after"] = "1"
    if "allow" in error.facts:
        made["allow"] = str(error.facts["allow"])
    if row(error).status == 401:
        made["www-authenticate"] = "Bearer"
    return made
