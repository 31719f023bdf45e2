"""Metadata values: numbers and texts are read at open, arrays are stepped over and decoded when asked for.

A vocabulary is most of a header. Stepping over 400,000 strings is a walk of milliseconds in the compiled core and makes
sure that they lie inside the file; decoding them takes far longer and waits until a value is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly._core import skip_strings
from woolly.errors import FileError, printable
from woolly.gguf.cursor import Cursor
from woolly.limits import LIMITS

Value: TypeAlias = "int | float | bool | str | list[str] | NDArray[Any]"

BOOL, STRING, ARRAY = 7, 8, 9
NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "B", 10: "Q", 11: "q", 12: "d"}
_STRUCTS = {kind: struct.Struct("<" + code) for kind, code in _CODES.items()}


@dataclass(frozen=True, slots=True)
class Span:
    """An array that was stepped over: its element type, its length, and where its bytes are."""

    kind: int
    count: int
    start: int
    end: int


def read_value(c: Cursor) -> int | float | bool | str | Span:
    """One value at the cursor: the file has its type first."""
    kind = c.u32("the type of a value")
    if kind == STRING:
        return c.text(LIMITS.string, "the text")
    if kind == ARRAY:
        return _read_array(c)
    if kind not in _STRUCTS:
        raise c.fail(f"unknown value type {kind}")
    value: int | float = c.number(_STRUCTS[kind], "the number")
    return _read_bool(c, value) if kind == BOOL else value


def _read_bool(c: Cursor, value: float) -> bool:
    if value not in (0, 1):
        raise c.fail(f"a boolean is {value}, not 0 or 1")
    return value == 1


def _read_array(c: Cursor) -> Span:
    kind = c.u32("the element type of an array")
    if kind == ARRAY:
        raise c.fail("an array of arrays is not supported")
    if kind != STRING and kind not in _STRUCTS:
        raise c.fail(f"unknown element type {kind} of an array")
    size = 8 if kind == STRING else _STRUCTS[kind].size
    count = c.fits(c.u64("the length of an array"), LIMITS.array, size, "the length of an array")
    start = c.at
    if kind == STRING:
        end, valid = skip_strings(c.data[: c.end], c.at, count, LIMITS.element)
        if valid < count:
            c.at = end
            c.string(LIMITS.element, f"string {valid:,} of {count:,}")
        c.at = end
    else:
        c.need(size * count, f"an array of {count:,} numbers")
    return Span(kind, count, start, c.at)


def _decode_strings(data: memoryview, span: Span) -> list[str]:
    raw = bytes(data[span.start : span.end])
    texts, at = [], 0
    for _ in range(span.count):
        n = raw[at] | raw[at + 1] << 8  # the walk at open has made sure that no string is longer than 65,535 bytes
        at += 8
        texts.append(raw[at : at + n].decode("utf-8"))
        at += n
    return texts


class Metadata(Mapping[str, Value]):
    """The key-value pairs of a file, in file order; arrays are decoded when first asked for, and kept.

    Numbers and booleans of an array come as a read-only NumPy array of the file's own type, texts as a list.
    """

    def __init__(self, name: str, data: memoryview, values: Mapping[str, int | float | bool | str | Span]) -> None:
        self._name = name
        self._data = data
        self._values: dict[str, int | float | bool | str | Span] = dict(values)
        self._arrays: dict[str, list[str] | NDArray[Any]] = {}

    def __getitem__(self, key: str) -> Value:
        value = self._values[key]
        if not isinstance(value, Span):
            return value
        if key not in self._arrays:
            self._arrays[key] = self._decode(key, value)
        return self._arrays[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def length(self, key: str) -> int | None:
        """The length of an array without decoding it; None for what is no array."""
        value = self._values[key]
        return value.count if isinstance(value, Span) else None

    def same(self, key: str, other: Metadata) -> bool:
        """Whether both have the same value for the key."""
        mine, theirs = self._values.get(key), other._values.get(key)
        if isinstance(mine, Span) and isinstance(theirs, Span):
            a, b = self._data[mine.start : mine.end], other._data[theirs.start : theirs.end]
            return mine.kind == theirs.kind and a == b
        both_nan = mine != mine and theirs != theirs
        return type(mine) is type(theirs) and (mine == theirs or both_nan)

    def _decode(self, key: str, span: Span) -> list[str] | NDArray[Any]:
        try:
            if span.kind == STRING:
                return _decode_strings(self._data, span)
        except UnicodeDecodeError as error:
            raise FileError(
                f"{self._name}: a string of '{printable(key)}' is not UTF-8: '{printable(error.object)}'",
                file=self._name, key=key, offset=span.start,
            ) from None  # fmt: skip
        raw = bytes(self._data[span.start : span.end])
        if span.kind == BOOL:
            if raw.strip(b"\0\1"):
                raise FileError(
                    f"{self._name}: a boolean of '{printable(key)}' is not 0 or 1",
                    file=self._name, key=key, offset=span.start,
                )  # fmt: skip
            return np.frombuffer(raw, np.bool_)
        return np.frombuffer(raw, NUMBERS[span.kind])
