"""Framing: how the answers of a stream follow each other on the wire. Nothing else of the server writes a frame.

A door names its framing, so that whoever sends the stream can frame an error, and keep a silent reader, without knowing
the format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Framing:
    """frame: the bytes of one Struct. last: sent after a stream that ended well. comment: keeps a silent reader; b"" is
    none."""

    media_type: str
    frame: Callable[[object], bytes]
    last: bytes = b""
    comment: bytes = b""


def event(value: object) -> bytes:
    """A server-sent event. JSON writes every line break inside a text as an escape, so it is one line."""
    return b"data: " + _encode(value) + b"\n\n"


EVENTS = Framing("text/event-stream", event, last=b"data: [DONE]\n\n", comment=b":\n\n")
