"""Checks of single parameters: a number, a whole number, texts. A wrong one is a RequestError that names it."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from woolly.errors import RequestError, printable
from woolly.limits import LIMITS


def read_number(name: str, value: object, least: float, most: float) -> float:
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise RequestError(f"{name} is a number, not {shown(value)}", param=name, value=value) from None
    if not least <= number <= most:  # refuses a NaN, too
        raise RequestError(f"{name} is {number:g}, but must be between {least:g} and {most:g}", param=name, value=value)
    return number


def read_integer(name: str, value: object, least: int, most: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise RequestError(f"{name} is a whole number, not {shown(value)}", param=name, value=value) from None
    if not least <= number <= most:
        raise RequestError(f"{name} is {shown(value)}, but must be between {least} and {most}", param=name, value=value)
    return number


def shown(value: object) -> str:
    """A value as text for a message; Python refuses to write out an integer of thousands of digits."""
    return "a huge number" if isinstance(value, int) and value.bit_length() > 256 else printable(value)


def read_texts(name: str, value: object) -> tuple[str, ...]:
    """One text or several, as the stop texts are; each short, none empty."""
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{name} is a text or a list of texts", param=name)
    if len(texts) > LIMITS.stops:
        raise RequestError(
            f"{name} has {len(texts)} texts, but may have {LIMITS.stops}", param=name, limit=LIMITS.stops
        )
    for text in texts:
        size = len(text.encode("utf-8", "surrogatepass"))
        if not 1 <= size <= LIMITS.stop_bytes:
            raise RequestError(
                f"a text of {name} has {size} bytes, but must have between 1 and {LIMITS.stop_bytes}",
                param=name,
                limit=LIMITS.stop_bytes,
            )
    return texts
