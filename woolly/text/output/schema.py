"""Values from text, where a model writes all values as text and only the schema of the tool tells their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from woolly.request.messages import Tool

_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def property_of(tools: Mapping[str, Tool], name: str, key: str) -> Any:
    """The schema of a parameter, {} where none is known."""
    properties = tools[name].parameters.get("properties") if name in tools else None
    return properties.get(key, {}) if isinstance(properties, Mapping) else {}


def kinds(schema: Any) -> set[str]:
    """The types that a schema allows, as far as it says."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {kind for kind in named or () if isinstance(kind, str)}
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word) or ():
            types |= kinds(part)
    if not types:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        types = {_kind(value) for value in values} if isinstance(values, list) else types
    return types


def typed(text: str, schema: Any, attributes: Mapping[str, str] | None = None) -> Any:
    """The value that a text stands for: by the attribute of its tag, else by the schema. A misfit stays text."""
    attributes = attributes or {}
    if "string" in attributes or "type" in attributes:
        words = attributes.get("string") == "true" or attributes.get("type") == "string"
        return text if words else _json(text, text)
    allowed = kinds(schema)
    if not allowed - {"string"}:
        return text
    value = _json(text, text)
    kind = _kind(value)
    if value is None and "null" in allowed and text.strip() == "null":
        return None
    if "string" in allowed:
        return value if kind in allowed & {"object", "array"} else text
    if kind == "number" and "number" not in allowed and "integer" in allowed and value == int(value):
        return int(value)
    return value if kind in allowed or (kind == "integer" and "number" in allowed) else text


def _kind(value: Any) -> str:
    return "null" if value is None else _NAMES[type(value)]


def _json(text: str, otherwise: Any) -> Any:
    try:
        word = {"True": "true", "False": "false"}.get(text.strip(), text)
        return json.loads(word, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return otherwise


def _refuse(name: str) -> Any:
    raise ValueError(name)
