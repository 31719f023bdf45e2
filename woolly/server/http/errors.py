"""From an error's stable code to the status of HTTP and the type that each dialect calls it by. One table.

429: the caller has reached a limit that passes by itself, its own or that of the queue. 503: the server takes no work
now, because it loads, ends, or has no memory. Both say after how many seconds to ask again.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from woolly.errors import BusyError, RequestError, WoollyError
from woolly.server.http.reply import Reply


@dataclass(frozen=True, slots=True)
class ErrorKind:
    status: int
    woolly: str  # `type` in Woolly's dialect
    openai: str  # `type` in OpenAI's


_INVALID = "invalid_request_error"
_SERVER = "server_error"

ERROR_KINDS = {
    "invalid_request": ErrorKind(400, "invalid_request", _INVALID),
    "validation_error": ErrorKind(400, "validation_error", _INVALID),
    "json_parse_error": ErrorKind(400, "json_parse_error", _INVALID),
    "context_error": ErrorKind(400, "context_error", _INVALID),
    "previous_response_not_found": ErrorKind(400, "invalid_request", _INVALID),
    "unsupported": ErrorKind(400, "invalid_request", _INVALID),
    "model_error": ErrorKind(400, "model_error", _INVALID),
    "file_error": ErrorKind(400, "model_error", _INVALID),
    "load_failed": ErrorKind(500, "model_error", _SERVER),
    "authentication_failed": ErrorKind(401, "authentication_failed", "authentication_error"),
    "access_denied": ErrorKind(403, "access_denied", "permission_error"),
    "not_found": ErrorKind(404, "not_found", _INVALID),
    "model_not_found": ErrorKind(404, "model_not_found", _INVALID),
    "session_not_found": ErrorKind(404, "session_not_found", _INVALID),
    "method_not_allowed": ErrorKind(405, "method_not_allowed", _INVALID),
    "request_timeout": ErrorKind(408, "timeout", _INVALID),
    "conflict": ErrorKind(409, "conflict", _INVALID),
    "payload_too_large": ErrorKind(413, "payload_too_large", _INVALID),
    "uri_too_long": ErrorKind(414, "invalid_request", _INVALID),
    "unsupported_media_type": ErrorKind(415, "invalid_request", _INVALID),
    "rate_limit_exceeded": ErrorKind(429, "rate_limit_exceeded", "rate_limit_error"),
    "headers_too_large": ErrorKind(431, "invalid_request", _INVALID),
    "native_error": ErrorKind(500, "internal_server_error", _SERVER),
    "generation_error": ErrorKind(500, "generation_error", _SERVER),
    "disk_error": ErrorKind(500, "io_error", _SERVER),
    "disk_full": ErrorKind(500, "io_error", _SERVER),
    "mcp_protocol_error": ErrorKind(502, "mcp_protocol_error", _SERVER),
    "download_error": ErrorKind(502, "download_error", _SERVER),
    "busy": ErrorKind(503, "overloaded", _SERVER),
    "overloaded": ErrorKind(503, "overloaded", _SERVER),
    "address_in_use": ErrorKind(503, "resource_unavailable", _SERVER),
    "not_enough_memory": ErrorKind(503, "resource_unavailable", _SERVER),
    "timeout": ErrorKind(504, "timeout", _SERVER),
}
ROUTES = {  # a call of the library -> the route that does the same
    "generate": "POST /v1/completions",
    "chat": "POST /v1/chat/completions",
    "embed": "POST /v1/embeddings",
    "rerank": "POST /v1/rerank",
}
INTERNAL = ErrorKind(500, "internal_server_error", _SERVER)


def kind_of(error: WoollyError) -> ErrorKind:
    return ERROR_KINDS.get(error.code, INTERNAL)


def in_http(error: WoollyError) -> WoollyError:
    """The error in words of HTTP: a suggestion to use another call of the library names its route."""
    calls = error.facts.get("calls")
    if not isinstance(calls, tuple):
        return error
    renamed = copy.copy(error)
    renamed.suggestion = f"use {' or '.join(ROUTES[call] for call in calls)}"
    return renamed


def key_needed() -> RequestError:
    return RequestError(
        "a valid API key is needed",
        suggestion="send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
        code="authentication_failed",
    )


def too_many(what: str, wait_s: int) -> BusyError:
    """A limit of the caller, or of the queue that all share, is reached: ask again after so many seconds."""
    return BusyError(what, suggestion=f"try again in {wait_s} s", code="rate_limit_exceeded", retry_after=str(wait_s))


def reply(error: WoollyError, body: object) -> Reply[object]:
    """An error with its status and headers; the body has the dialect's shape."""
    return Reply(body, kind_of(error).status, headers=_headers(error))


def _headers(error: WoollyError) -> dict[str, str]:
    """The headers of an error: when to ask again, which methods there are, how to authenticate."""
    headers: dict[str, str] = {}
    if "retry_after" in error.facts:
        headers["retry-after"] = str(error.facts["retry_after"])
    elif kind_of(error).status in (429, 503):
        headers["retry-after"] = "1"
    if "allow" in error.facts:
        headers["allow"] = str(error.facts["allow"])
    if kind_of(error).status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers
