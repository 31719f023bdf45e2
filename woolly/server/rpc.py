"""JSON-RPC as the Model Context Protocol uses it: revisions, codes of errors, and the messages of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEWEST = "2026-07-28"
BEFORE = ("2025-11-25", "2025-06-18", "2025-03-26")  # those with a handshake, newest first
META = "io.modelcontextprotocol/"

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
NO_RESOURCE = -32002  # in the revisions before the newest
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022


class RpcError(Exception):
    """What a message is answered with where it cannot be done."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def failed(id_: str | int | None, error: RpcError) -> dict[str, Any]:
    """The message of an error."""
    body = {"code": error.code, "message": error.message} | ({} if error.data is None else {"data": error.data})
    return {"jsonrpc": "2.0", "id": id_, "error": body}


def is_newest(params: Mapping[str, Any]) -> bool:
    """Whether a request says by which revision it speaks: those before the newest do not."""
    return f"{META}protocolVersion" in _meta(params)


def revision(params: Mapping[str, Any]) -> object:
    return _meta(params).get(f"{META}protocolVersion")


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
