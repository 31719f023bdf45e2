"""What is said of a format that cannot be kept to: llguidance's own messages, in words that a caller understands."""

from __future__ import annotations

import re

from woolly.errors import RequestError, printable
from woolly.request.format import Format

KEYWORDS = (  # messages of llguidance about a schema, and what we say instead
    (r"Unimplemented keys: \[(.*)\]", r"the keyword \1"),
    (r"Unknown format: (.*)", r"the keyword 'format' with '\1'"),
    (r"oneOf ", r"the keyword 'oneOf', of whose schemas two may fit at once"),
    (r"Resource '(.*?)' is not present", r"the keyword '$ref' with '\1', which is not in the schema"),
)


def readable(message: str) -> str:
    """A message of llguidance in one line, with the keyword that it is about where that is known."""
    for pattern, replacement in KEYWORDS:
        if match := re.match(pattern, message):
            return printable(match.expand(replacement).replace('"', "'"), 300)
    return printable(" ".join(message.split()), 300)


def refusal(format: Format, message: str) -> RequestError:
    schema = format.kind in ("json", "schema")
    return RequestError(
        f"the format, {'JSON of a schema' if schema else format.kind}, cannot be kept to: {readable(message)}",
        suggestion="take that out, or ask for any JSON object" if schema else "",
        param="format",
    )
