"""JSON-RPC as the Model Context Protocol uses it, for both sides: revisions, codes of errors, and the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEWEST = "2026-07-28"
HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26")  # those with a handshake, newest first
META_PREFIX = "io.modelcontextprotocol/"
NAME_PARAMS = {"tools/call": "name", "resources/read": "uri", "prompts/get": "name"}  # what the header Mcp-Name repeats

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
RESOURCE_NOT_FOUND = -32002  # in the revisions before the newest
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022


class RpcError(Exception):
    """The error that answers a message which cannot be carried out."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def request(id_: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A message that expects an answer."""
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": dict(params)}


def notification(method: str) -> dict[str, Any]:
    """A message that expects no answer."""
    return {"jsonrpc": "2.0", "method": method}


def result_of(message: object, id_: int) -> Mapping[str, Any] | None:
    """The result in a message, if it answers this request; None if it is a request of the other side. Raises
    RpcError for an error response, ValueError for anything that is not JSON-RPC or answers another request."""
    if not isinstance(message, Mapping) or message.get("jsonrpc") != "2.0":
        raise ValueError("sent what is no message of JSON-RPC")
    if "method" in message:
        return None
    error, result = message.get("error"), message.get("result")
    if message.get("id") != id_ and not (message.get("id") is None and error is not None):
        raise ValueError("answered a request that nobody made")
    if isinstance(error, Mapping):
        code = error.get("code")
        raise RpcError(code if isinstance(code, int) else INVALID_REQUEST, str(error.get("message")))
    if not isinstance(result, Mapping):
        raise ValueError("answered without a result")
    return result


def error_response(id_: str | int | None, error: RpcError) -> dict[str, Any]:
    """The message of an error."""
    body = {"code": error.code, "message": error.message} | ({} if error.data is None else {"data": error.data})
    return {"jsonrpc": "2.0", "id": id_, "error": body}


def is_newest(params: Mapping[str, Any]) -> bool:
    """Whether a request names its revision, as only requests of the newest one do."""
    return f"{META_PREFIX}protocolVersion" in _meta(params)


def revision(params: Mapping[str, Any]) -> object:
    return _meta(params).get(f"{META_PREFIX}protocolVersion")


def check_meta(params: Mapping[str, Any]) -> None:
    """Refuse a request of the newest revision that lacks a required field of `_meta`. Raises RpcError."""
    meta = _meta(params)
    for name, kind in ((f"{META_PREFIX}protocolVersion", str), (f"{META_PREFIX}clientCapabilities", Mapping)):
        if not isinstance(meta.get(name), kind):
            raise RpcError(INVALID_PARAMS, f"'_meta' lacks '{name}', which the revision {NEWEST} needs")


def text_of(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, f"'{name}' is a text")
    return value


def object_of(params: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = params.get(name) or {}
    if not isinstance(value, Mapping):
        raise RpcError(INVALID_PARAMS, f"'{name}' is an object")
    return value


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, Mapping) else {}
