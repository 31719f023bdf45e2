"""The shape of an answer: what its reader relies on, without what time and chance decide.

An object keeps its keys, a list the shapes of its items (runs of equal ones once), a number its type. A text is
`string`, but for the empty one, for words that are codes (CODES), and for true, false and null. Streams are lists of
events, runs of equal ones once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator
from typing import Any

CODES = re.compile(
    "capabilities|code|completion_window|done_reason|endpoint|enum|error_code|event|finish_reason|format|jsonrpc|kind|"
    "method|name|object|owned_by|param|protocolVersion|protocol_version|purpose|quantization|require_approval|required|"
    "resultType|role|server_label|state|status|stop_reason|stop_type|stopping_word|style|token_type|tool_choice|"
    "truncation|type"
)
WORD = re.compile(r"[A-Za-z0-9_./:\[\]-]{1,64}")
HEADERS = ("allow", "cache-control", "content-type", "vary", "www-authenticate")  # whose values are kept, too
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? [^ ]+$")
LABEL = re.compile(r'([a-zA-Z_]\w*)="')


def shape(value: Any, *, key: str = "", vague: Container[str] = ()) -> Any:
    """The shape of a JSON value that stands at this key. vague: keys whose values are no codes here."""
    if isinstance(value, dict):
        return {name: shape(one, key=name, vague=vague) for name, one in value.items()}
    if isinstance(value, list):
        rows = [shape(one, key=key, vague=vague) for one in value]
        if is_tagged(value):
            return [f"= {value[0]}", *rows[1:]]
        return once(rows)
    if key in vague:
        return "any"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        kind = "integer" if isinstance(value, int) else "number"
        return value if key in ("code", "status") else kind
    if CODES.fullmatch(key) and WORD.fullmatch(value):
        return f"= {value}"
    return "string" if value else ""


def is_tagged(value: list[Any]) -> bool:
    """Whether a list stands for an object of the kind that its first item names, as an event on the wire of a fleet."""
    return len({type(one) for one in value}) > 1 and isinstance(value[0], str) and WORD.fullmatch(value[0]) is not None


def once(rows: Iterable[Any]) -> list[Any]:
    """Runs of equal rows as one row."""
    distinct: list[Any] = []
    for row in rows:
        if not distinct or distinct[-1] != row:
            distinct.append(row)
    return distinct


def headers_of(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names in lower case, with their values where a reader relies on them."""
    rows = []
    for name, value in ((name.lower(), value) for name, value in pairs):
        rows.append(f"{name}: {re.sub(r'boundary=.*', 'boundary', value)}" if name in HEADERS else name)
    return sorted(rows)


def body_of(data: bytes, media_type: str, *, vague: Container[str] = (), unordered: bool = False) -> Any:
    """The shape of a body of this type."""
    kind = media_type.partition(";")[0].strip()
    if not data:
        return "nothing"
    if kind == "application/json":
        return shape(json.loads(data), vague=vague)
    if kind == "text/event-stream":
        return stream(events(data, vague), unordered)
    if kind == "application/x-ndjson":
        return stream((shape(json.loads(line), vague=vague) for line in data.splitlines() if line), unordered)
    if kind == "text/plain" and b"# TYPE" in data:
        return sorted(set(metrics(data.decode())))
    return lines(data, vague) if kind == "application/octet-stream" else f"some {kind or 'bytes'}"


def stream(rows: Iterable[Any], unordered: bool) -> dict[str, Any]:
    distinct = once(rows)
    if unordered:
        distinct = once(sorted(distinct, key=lambda row: json.dumps(row, sort_keys=True)))
    return {"events": distinct}


def events(data: bytes, vague: Container[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events; comments only say that the server is still there."""
    for block in re.split(r"\r?\n\r?\n", data.decode()):
        row: dict[str, Any] = {}
        for name, _, value in (line.partition(":") for line in block.splitlines()):
            text = value.removeprefix(" ")
            if name == "data":
                row["data"] = (
                    shape(json.loads(text), vague=vague) if text[:1] in ("{", "[") and text != "[DONE]" else text
                )
            elif name:
                row[name] = "any" if name == "id" else text
        if row:
            yield row


def metrics(text: str) -> Iterator[str]:
    """Prometheus' text: the types, and each sample's name with the names of its labels."""
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            yield line
        elif match := SAMPLE.fullmatch(line):
            yield f"{match[1]}{{{','.join(LABEL.findall(match[2] or ''))}}}"


def lines(data: bytes, vague: Container[str]) -> Any:
    """A file of JSON lines, or any other."""
    try:
        return {"lines": once(shape(json.loads(line), vague=vague) for line in data.decode().splitlines() if line)}
    except ValueError:
        return "some bytes"
