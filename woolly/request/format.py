"""Format: what the text of an answer must be, however a caller says it. Checked and bounded when it is made.

    Format("json")                              a JSON object
    Format("schema", {"type": "object"})        JSON that this schema describes
    Format("regex", "[0-9]{4}")                 a text that matches as a whole
    Format("lark", 'start: "yes" | "no"')       a text of a grammar of Lark, as llguidance reads it
    Format("gbnf", 'root ::= "yes" | "no"')     a text of a grammar of llama.cpp
    Format("choice", ("yes", "no"))             one of these texts

What a grammar means, and what cannot be kept to, is found out where the model is (engine/grammar/constrain.py):
it is refused there by its keyword or its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from woolly.errors import RequestError, printable
from woolly.limits import LIMITS

Kind: TypeAlias = Literal["json", "schema", "regex", "lark", "gbnf", "choice"]
# Where an object has one of these, other properties than it names may be meant.
_OPEN = frozenset(("additionalProperties", "patternProperties", "minProperties", "allOf", "anyOf", "oneOf", "$ref"))


@dataclass(frozen=True, slots=True)
class Format:
    """What the text of an answer must be; an answer that is cut at its limit is the beginning of such a text.

    value: the text of a pattern or grammar, the JSON of a schema, or the texts of a choice: equal formats are one key.
    strict: a schema that cannot be kept to is refused. Else the parts that cannot be kept to are left out of it, and
    `engine.left_out` names them.
    """

    kind: Kind
    value: Any = ""
    strict: bool = True

    def __post_init__(self) -> None:
        check = _CHECKS.get(self.kind) if isinstance(self.kind, str) else None
        if check is None:
            raise RequestError(f"'{printable(self.kind)}' is no format; known are {', '.join(_CHECKS)}", param="format")
        object.__setattr__(self, "value", check(self.value))
        if not self.strict and self.kind != "schema":
            raise RequestError("only a schema can be kept to in part", param="format")


def read_format(value: object) -> Format | None:
    """A format as callers give it: "json" and a JSON schema are taken for one."""
    if value is None or isinstance(value, Format):
        return value
    if isinstance(value, Mapping):
        return Format("schema", value)
    if value == "json":
        return Format("json")
    raise RequestError(f'format is "json", a JSON schema or a Format, not {printable(value)}', param="format")


def closed(format: Format) -> Format:
    """A schema whose objects have no properties but those that they name, unless they say otherwise.

    A schema that lists properties is taken to mean no others: a small model would go on with more until its limit. JSON
    that is valid for the result is valid for the original schema.
    """
    return replace(format, value=_closed(json.loads(format.value)))


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    if not _in_pieces(schema):
        if "items" in result:
            result["items"] = _closed(result["items"])
        for name in result.keys() & {"properties", "$defs", "definitions"}:
            if isinstance(result[name], dict):
                result[name] = {key: _closed(inner) for key, inner in result[name].items()}
    named, required = result.get("properties"), result.get("required", [])
    if isinstance(named, dict) and not result.keys() & _OPEN and all(name in named for name in required):
        result["additionalProperties"] = False
    return result


def _in_pieces(value: object) -> bool:
    """Whether an object is described in several places, none of which knows the properties of the others."""
    if isinstance(value, dict) and ("allOf" in value or value.keys() >= {"$ref", "properties"}):
        return True
    return any(map(_in_pieces, _inside(value)))


def _nothing(value: object) -> str:
    if value != "":
        raise RequestError("the format json takes no value; a schema is of the kind schema", param="format")
    return ""


def _grammar(value: object) -> str:
    """The text of a pattern or a grammar."""
    if not isinstance(value, str) or not value:
        raise RequestError("a pattern or grammar is a text, and not empty", param="format")
    return _bounded("a pattern or grammar", value)


def _schema(value: object) -> str:
    """A JSON schema, or the text of one, as JSON: its properties in their order, which is that of the answer."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            place = f"at line {error.lineno}, column {error.colno}"
            raise RequestError(f"the JSON schema is no JSON: {error.msg} {place}", param="format") from None
        except (ValueError, RecursionError):  # a number of thousands of digits, lists without end within each other
            raise RequestError("the JSON schema is no JSON that can be read", param="format") from None
    if not isinstance(value, Mapping):
        raise RequestError(f"a JSON schema is an object, not {printable(value)}", param="format")
    level: list[Any] = [value]
    values = 0
    for _ in range(
        LIMITS.format_depth
    ):  # by hand: the JSON writer has no limit of depth, and follows a value that contains itself
        values += len(level)
        if not level or values > LIMITS.format_values:
            break
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise RequestError(
            f"the JSON schema has more than {LIMITS.format_values:,} values, or is nested more than "
            f"{LIMITS.format_depth} deep",
            param="format",
        )
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=dict, separators=(",", ":"))
    except (TypeError, ValueError):
        raise RequestError("the JSON schema holds something that JSON cannot write", param="format") from None
    return _bounded("the JSON schema", text)


def _inside(value: object) -> Iterable[Any]:
    """The values directly inside a JSON object or list."""
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()


def _choice(value: object) -> tuple[str, ...]:
    texts = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else ()
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise RequestError("a choice is a list of texts, none of them empty", param="format")
    _bounded("the texts of the choice", "".join(texts))
    return tuple(dict.fromkeys(texts))


def _bounded(what: str, text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RequestError(f"{what} holds a lone surrogate, which no text of a model has", param="format") from None
    if size > LIMITS.format_bytes:
        raise RequestError(
            f"{what}: {size:,} bytes, but {LIMITS.format_bytes:,} are allowed",
            param="format",
            limit=LIMITS.format_bytes,
        )
    return text


_CHECKS: Mapping[str, Callable[[object], str | tuple[str, ...]]] = {
    "json": _nothing,
    "schema": _schema,
    "regex": _grammar,
    "lark": _grammar,
    "gbnf": _grammar,
    "choice": _choice,
}
