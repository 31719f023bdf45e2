"""Strict JSON: what a proxy could read differently, or what only costs, is refused."""

from __future__ import annotations

import time

import pytest

from woolly.errors import RequestError
from woolly.limits import SERVING
from woolly.server.body import read_json


@pytest.mark.parametrize("text", [b"{", b"{:", b'{"a":1,}', b"'a'", b"", b"null", b"[]", b'"x"', b"1"])
def test_h01_what_is_no_object_is_refused_with_its_place(text: bytes) -> None:
    with pytest.raises(RequestError, match=r"column|object") as caught:
        read_json(text, SERVING)
    assert caught.value.code == "json_parse_error"


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 65, b"18446744073709551616"])
def test_h03_h04_a_number_that_is_none_or_is_too_long_is_refused(number: bytes) -> None:
    with pytest.raises(RequestError):
        read_json(b'{"a":' + number + b"}", SERVING)


def test_h04_a_number_of_a_million_digits_costs_nothing() -> None:
    begun = time.thread_time()
    with pytest.raises(RequestError):
        read_json(b'{"a":' + b"9" * 10**6 + b"}", SERVING)
    assert time.thread_time() - begun < 0.2


@pytest.mark.parametrize("depth", [65, 3_000, 1_000_000])
@pytest.mark.parametrize("sign", [b"[", b'{"a":'])
def test_h05_deep_nesting_is_refused_without_recursion(depth: int, sign: bytes) -> None:
    begun = time.thread_time()
    with pytest.raises(RequestError, match="nested"):
        read_json(b'{"a":' + sign * depth, SERVING)
    assert time.thread_time() - begun < 0.2


def test_sixty_four_levels_are_read() -> None:
    assert read_json(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}", SERVING)


def test_h05_brackets_inside_texts_are_no_nesting() -> None:
    assert read_json(b'{"a":"' + b"[" * 1000 + b'\\"' + b"{" * 100 + b'"}', SERVING)


@pytest.mark.parametrize("text", [b'"\\"' * 400_000, b'{"a":"' + b"\\" * 999_999, b'{"' + b'\\"' * 500_000])
def test_an_unfinished_text_is_scanned_once(text: bytes) -> None:
    begun = time.thread_time()
    with pytest.raises(RequestError):
        read_json(text, SERVING)
    assert time.thread_time() - begun < 1.0


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
