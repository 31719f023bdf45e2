"""Framing: how the answers of a stream follow each other on the wire. Nothing else of the server writes a frame.

A door names its framing, so that whoever sends the stream can frame an error, and keep a silent reader, without knowing
the format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Framing:
    """frame: the bytes of one Struct. schema: describes a frame, given the schema of its Struct. last: sent after a
    stream that ended well. comment: keeps a silent reader; b"" is none."""

    media_type: str
    frame: Callable[[object], bytes]
    schema: Callable[[dict[str, Any]], dict[str, Any]]
    last: bytes = b""
    comment: bytes = b""


def event(value: object) -> bytes:
    """A server-sent event. JSON writes every line break inside a text as an escape, so it is one line."""
    return b"data: " + _encode(value) + b"\n\n"


def event_schema(data: dict[str, Any]) -> dict[str, Any]:
    """A line of JSON, or the last event of a stream that ended well."""
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    return {
        "type": "object",
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, text]}},
        "required": ["data"],
    }


def line(value: object) -> bytes:
    """A line of JSON."""
    return _encode(value) + b"\n"


EVENTS = Framing("text/event-stream", event, event_schema, last=b"data: [DONE]\n\n", comment=b":\n\n")
LINES = Framing("application/x-ndjson", line, lambda made: made)
