"""Server-sent events: one line of JSON behind `data: `, an empty line, and nothing else."""

from __future__ import annotations

import msgspec

DONE = b"data: [DONE]\n\n"
COMMENT = b":\n\n"  # keeps a silent connection alive; readers skip it

_encode = msgspec.json.Encoder().encode


def event(value: object) -> bytes:
    """One event. JSON writes every line break inside a text as an escape, so it is one line."""
    return b"data: " + _encode(value) + b"\n\n"
