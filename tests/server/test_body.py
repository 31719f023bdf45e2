"""Strict JSON: texts that a proxy could read differently, or that only cost time, are refused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest

from woolly.config.serving import SERVING
from woolly.errors import RequestError
from woolly.server.http import body
from woolly.server.http.body import read_json


@pytest.mark.parametrize("text", [b"{", b"{:", b'{"a":1,}', b"'a'", b"", b"null", b"[]", b'"x"', b"1"])
def test_h01_what_is_no_object_is_refused_with_its_place(text: bytes) -> None:
    with pytest.raises(RequestError, match=r"column|object") as caught:
        read_json(text, SERVING)
    assert caught.value.code == "json_parse_error"


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 65, b"18446744073709551616"])
def test_h03_h04_a_number_that_is_none_or_is_too_long_is_refused(number: bytes) -> None:
    with pytest.raises(RequestError):
        read_json(b'{"a":' + number + b"}", SERVING)


def cost_s(text: bytes) -> float:
    """The seconds to refuse a text, the least of a few tries: other work of the machine only adds to them."""
    times = []
    for _ in range(5):
        begun = time.thread_time_ns()
        with pytest.raises(RequestError):
            read_json(text, SERVING)
        times.append(time.thread_time_ns() - begun)
    return min(times) / 1e9


def is_linear(make: Callable[[int], bytes]) -> bool:
    """Whether a text ten times as long costs far less than a hundred times as much."""
    return cost_s(make(400_000)) < 40 * cost_s(make(40_000))


def test_h04_a_number_of_many_digits_costs_no_more_than_its_bytes() -> None:
    assert is_linear(lambda size: b'{"a":' + b"9" * size + b"}")


@pytest.mark.parametrize("depth", [65, 3_000, 1_000_000])
@pytest.mark.parametrize("sign", [b"[", b'{"a":'])
def test_h05_deep_nesting_is_refused_without_recursion(depth: int, sign: bytes) -> None:
    with pytest.raises(RequestError, match="nested"):
        read_json(b'{"a":' + sign * depth, SERVING)
    assert is_linear(lambda size: b'{"a":' + sign * size)


def test_sixty_four_levels_are_read() -> None:
    assert read_json(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}", SERVING)


def test_h05_brackets_inside_texts_are_no_nesting() -> None:
    assert read_json(b'{"a":"' + b"[" * 1000 + b'\\"' + b"{" * 100 + b'"}', SERVING)


@pytest.mark.parametrize(("before", "again"), [(b"", b'"\\"'), (b'{"a":"', b"\\"), (b'{"', b'\\"')])
def test_an_unfinished_text_is_scanned_once(before: bytes, again: bytes) -> None:
    assert is_linear(lambda size: before + again * (size // len(again) - 1))  # an odd number of backslashes


@pytest.mark.parametrize("sign", [b'"', b'"",', b'a"b"', b"]", b"}", b"[]", b"{},", b'\\"', b":"])
def test_h07_a_body_is_read_in_few_steps_whatever_its_signs_are(sign: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, signs = [0], body._SIGNS

    class Counted:
        def finditer(self, data: bytes) -> Iterator[re.Match[bytes]]:
            for match in signs.finditer(data):
                steps[0] += 1
                yield match

    monkeypatch.setattr(body, "_SIGNS", Counted())
    with pytest.raises(RequestError):
        read_json(b'{"a":' + sign * ((10 << 20) // len(sign)), SERVING)
    assert steps[0] <= 2 * SERVING.values + 10_000


def test_h06_a_key_that_stands_twice_is_refused() -> None:
    with pytest.raises(RequestError, match="'model' stands twice"):
        read_json(b'{"model":"a","model":"b"}', SERVING)


def test_h18_a_byte_order_mark_is_read_and_utf16_is_not() -> None:
    assert read_json(b'\xef\xbb\xbf{"a":1}', SERVING) == {"a": 1}
    with pytest.raises(RequestError):
        read_json('{"a":1}'.encode("utf-16"), SERVING)


def test_h19_bytes_that_are_no_utf8_are_refused_with_their_place() -> None:
    with pytest.raises(RequestError, match="byte 6"):
        read_json(b'{"a":"\xff"}', SERVING)


def test_half_a_surrogate_pair_is_no_character() -> None:
    assert read_json(b'{"a":"\\ud83d\\ude00"}', SERVING) == {"a": "😀"}
    with pytest.raises(RequestError, match="surrogate"):
        read_json(b'{"a":["\\ud83d"]}', SERVING)


def test_h07_too_many_values_are_refused() -> None:
    with pytest.raises(RequestError, match="values"):
        read_json(b'{"a":[' + b"1," * 250_000 + b"1]}", SERVING)
