"""Forms with a file: read in pieces of any size, and refused where incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from woolly.errors import RequestError
from woolly.server.http.forms import PARTS, boundary_of, form_parts

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a \\"b\\".jsonl"\r\nContent-Type: a/b\r\n\r\n'
    b"one\r\n--\r\n--a\r\ntwo\n\r\n"
    b'--b\r\nContent-Disposition: form-data; name="empty"\r\n\r\n\r\n--b--\r\nignored'
)


def read(data: bytes, size: int = 1000) -> dict[tuple[str, str | None], bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(data), size):
            yield data[at : at + size]

    async def gather() -> dict[tuple[str, str | None], bytes]:
        contents: dict[tuple[str, str | None], bytes] = {}
        async for part, piece in form_parts(pieces(), b"b"):
            key = (part.name, part.filename)
            contents[key] = contents.get(key, b"") + piece
        return contents

    return asyncio.run(gather())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_form_is_read_alike_in_pieces_of_any_size(size: int) -> None:
    assert read(FORM, size) == {
        ("purpose", None): b"batch",
        ("file", 'a "b".jsonl'): b"one\r\n--\r\n--a\r\ntwo\n",
        ("empty", None): b"",
    }


@pytest.mark.parametrize("end", range(1, len(FORM) - len(b"--\r\nignored"), 9))
def test_a_form_that_ends_too_early_is_refused(end: int) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        read(FORM[:end], 5)


@pytest.mark.parametrize(
    "data",
    [
        b"--c\r\n\r\nx",
        b"--b\r\n\r\nx\r\n--b--",
        b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
        b'--b\r\nContent-Disposition: form-data; surname="x"\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: attachment; name="x"\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: form-data; name="x"\r\nno header\r\n\r\nx\r\n--b--',
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n' + b"A: b\r\n" * 8 + b"\r\nx\r\n--b--",
        b'--bContent-Disposition: form-data; name="x"\r\n\r\nx\r\n--b--',
        b"--b\r\n" + b"x" * 5000,
        b"--b\r\n" + b"x" * 5000 + b"\r\n\r\n",
        b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\nx\r\n' * (PARTS + 1) + b"--b--",
    ],
)
def test_what_is_no_form_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        read(data, 100)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('multipart/form-data; charset=utf-8; boundary="a b"', b"a b"),
        ("Multipart/Form-Data;boundary=----x", b"----x"),
    ],
)
def test_a_boundary_is_found(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary="]
)
def test_a_body_without_a_boundary_is_no_form(content_type: str) -> None:
    with pytest.raises(RequestError, match="multipart/form-data"):
        boundary_of(content_type)
