"""The body of a request as JSON, read strictly, so that a proxy before the server reads no other meaning.

Refused are duplicate keys, NaN and infinities, lone surrogates, bytes that are no UTF-8, numbers of absurd length,
integers beyond 64 bits, and more nesting or values than an honest request has. The scan for nesting comes first: it
needs no recursion and no memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from woolly.config.serving import Serving
from woolly.errors import RequestError, printable

# One sign of structure, with what stands before it. Possessive, and with an end for a string that has none: one pass,
# whatever the bytes are; so many texts at most in one match, because nothing else of the process runs meanwhile.
_SIGNS = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)){0,4096}+([\[\]{},])?', re.DOTALL)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_BOM = b"\xef\xbb\xbf"


def read_json(data: bytes, limits: Serving, *, listed: str = "") -> Mapping[str, Any]:
    """The object that a body holds. listed: where it is a list, the field that the list becomes. For any thread; takes
    a few milliseconds a megabyte."""
    data = data.removeprefix(_BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(f"the body is not UTF-8 at byte {error.start:,}", offset=error.start) from None
    _measure(data, limits)

    def number(digits: str) -> int:
        if len(digits) > limits.number:
            raise _bad(f"a number has {len(digits):,} characters; at most {limits.number} are read")
        value = int(digits)
        if not -(2**63) <= value < 2**64:
            raise _bad(f"the number {printable(digits)} does not fit in 64 bits")
        return value

    def real(digits: str) -> float:
        if len(digits) > limits.number:
            raise _bad(f"a number has {len(digits):,} characters; at most {limits.number} are read")
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            raise _bad(f"the number {printable(digits)} is too large")
        return value

    decoder = json.JSONDecoder(
        object_pairs_hook=_object, parse_int=number, parse_float=real, parse_constant=_constant, strict=True
    )
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _bad(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _bad(f"the body is nested too deeply; at most {limits.nesting} levels are read") from None
    if listed and isinstance(value, list):
        value = {listed: value}
    if not isinstance(value, dict):
        raise _bad(f"the body is {_kind(value)}; expected an object, at line 1, column 1", expected="object")
    if "\\u" in text and _surrogates(value):
        raise _bad("the body holds half of a surrogate pair, which is no character")
    return value


def _measure(data: bytes, limits: Serving) -> None:
    depth, values = 0, 1
    for match in _SIGNS.finditer(data):
        sign = match[1]
        if sign is None:
            continue
        if sign in b"[{":
            depth += 1
            if depth > limits.nesting:
                raise _bad(f"the body is nested too deeply; at most {limits.nesting} levels are read")
            values += 1
        elif sign in b"]}":
            depth -= 1
            if depth < 0:
                return  # no JSON, and the decoder tells where
        else:
            values += 1
        if values > limits.values:
            raise _bad(f"the body has more than {limits.values:,} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _bad(f"the key '{printable(twice)}' stands twice in one object")
    return parsed


def _constant(name: str) -> float:
    raise _bad(f"{name} is no number of JSON")


def _surrogates(value: object) -> bool:
    if isinstance(value, str):
        return _SURROGATE.search(value) is not None
    if isinstance(value, dict):
        return any(_surrogates(key) or _surrogates(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_surrogates, value))


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _bad(message: str, **facts: Any) -> RequestError:
    return RequestError(message, code="json_parse_error", **facts)
