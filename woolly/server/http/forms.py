"""Forms with a file (multipart/form-data), read while they arrive: no file is held in memory.

python-multipart finds the parts; what is no form, or not a whole one, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from woolly.errors import RequestError, printable

PARTS = 16  # of one form
HEADERS, HEADER = 8, 4096  # of a part, and bytes of each

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it warns of every form that it refuses


@dataclass(frozen=True, slots=True)
class FormPart:
    name: str
    filename: str | None = None  # of a file


def boundary_of(content_type: str) -> bytes:
    """The boundary between the parts; raises RequestError where a body is no form."""
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 70:
        raise RequestError(
            "the body is a form with a file: multipart/form-data",
            code="unsupported_media_type",
            param="Content-Type",
        )
    return boundary


async def form_parts(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncGenerator[tuple[FormPart, bytes], None]:
    """The contents of a form in pieces, each with its part; every part has at least one piece."""
    reader = _Reader(boundary)
    async for piece in pieces:
        for part, content in reader.feed(piece):
            yield part, content
    if not reader.complete:
        raise _broken("it ends too early")


class _Reader:
    """What the parser calls, made a list of pieces."""

    def __init__(self, boundary: bytes) -> None:
        self.complete = False
        self._pieces: list[tuple[FormPart, bytes]] = []
        self._part = FormPart("")
        self._parts = 0
        self._name = self._value = self._disposition = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._add_name,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add,
                "on_end": self._end,
            },
            max_header_count=HEADERS,
            max_header_size=HEADER,
        )

    def feed(self, data: bytes) -> list[tuple[FormPart, bytes]]:
        if self.complete:
            return []  # bytes after the last part mean nothing
        self._pieces = []
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise _broken(printable(error, 100)) from None
        return self._pieces

    def _begin(self) -> None:
        self._parts += 1
        self._disposition = b""
        if self._parts > PARTS:
            raise _broken(f"it has more than {PARTS} parts")

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self._disposition)
        if kind != b"form-data" or b"name" not in options:
            raise _broken("a part has no name")
        filename = options.get(b"filename")
        self._part = FormPart(printable(options[b"name"], 255), None if filename is None else printable(filename, 255))
        self._pieces.append((self._part, b""))

    def _add(self, data: bytes, start: int, end: int) -> None:
        self._pieces.append((self._part, data[start:end]))

    def _end(self) -> None:
        self.complete = True


def _broken(what: str) -> RequestError:
    return RequestError(f"the form cannot be read: {what}", param="body")
