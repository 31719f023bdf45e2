"""Framing: how the pieces of a stream follow each other on the wire. No other module of the server writes a frame.

A route names its framing, so that the sender can frame an error, and keep an idle connection alive, without knowing the
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

_to_json = msgspec.json.Encoder().encode
_SEPARATORS = {sign.encode(): f"\\u{ord(sign):04x}".encode() for sign in "\u0085\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Framing:
    """frame: the bytes of one Struct. schema: describes a frame, given the schema of its Struct. last: sent after a
    stream that ended well. comment: keeps an idle connection alive; b"" is none."""

    media_type: str
    frame: Callable[[Any], bytes]
    schema: Callable[[dict[str, Any]], dict[str, Any]]
    last: bytes = b""
    comment: bytes = b""


def _encode(value: object) -> bytes:
    """JSON in one line. It escapes the line breaks below U+0020; many readers break lines at three others as well."""
    data = _to_json(value)
    if b"\xc2\x85" in data or b"\xe2\x80" in data:
        for sign, escape in _SEPARATORS.items():
            data = data.replace(sign, escape)
    return data


def event(value: object) -> bytes:
    """A server-sent event."""
    return b"data: " + _encode(value) + b"\n\n"


def named_event(value: msgspec.Struct) -> bytes:
    """A server-sent event with the name that stands in its data as `type`, the tag of the Struct."""
    return b"event: " + str(value.__struct_config__.tag).encode() + b"\ndata: " + _encode(value) + b"\n\n"


def event_schema(data: dict[str, Any]) -> dict[str, Any]:
    """A line of JSON, or the last event of a stream that ended well."""
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    return {
        "type": "object",
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, text]}},
        "required": ["data"],
    }


def named_event_schema(data: dict[str, Any]) -> dict[str, Any]:
    """A name, and a line of JSON."""
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    fields = {"event": {"type": "string"}, "data": {"anyOf": [text]}}
    return {"type": "object", "properties": fields, "required": ["data"]}


def line(value: object) -> bytes:
    """A line of JSON."""
    return _encode(value) + b"\n"


EVENTS = Framing("text/event-stream", event, event_schema, last=b"data: [DONE]\n\n", comment=b":\n\n")
NAMED = Framing("text/event-stream", named_event, named_event_schema, comment=b":\n\n")
LINES = Framing("application/x-ndjson", line, lambda schema: schema)
