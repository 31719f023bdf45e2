"""Forms with a file (multipart/form-data), read while they arrive: no file is held in memory.

It reads what clients of OpenAI's routes send: a boundary, and parts with a name and perhaps a file name. Any other form
is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from woolly.errors import RequestError, printable

PARTS = 16  # of one form
HEADERS = 4096  # bytes before the content of a part
_BOUNDARY = re.compile(r"multipart/form-data\s*;.*?boundary=(?:\"([^\"]{1,70})\"|([^\s;\"]{1,70}))", re.IGNORECASE)
_DISPOSITION = re.compile(rb"content-disposition:\s*form-data\s*;([^\r\n]*)", re.IGNORECASE)
_PARAM = re.compile(rb'(name|filename)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FormPart:
    name: str
    filename: str | None = None  # of a file


def boundary_of(content_type: str) -> bytes:
    """The boundary between the parts; raises RequestError where a body is no form."""
    match = _BOUNDARY.match(content_type)
    if match is None:
        raise RequestError(
            "the body is a form with a file: multipart/form-data",
            code="unsupported_media_type",
            param="Content-Type",
        )
    return (match[1] or match[2]).encode("latin-1")


async def form_parts(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncGenerator[tuple[FormPart, bytes], None]:
    """The contents of a form in pieces, each with its part; every part has at least one piece."""
    border, buffer = b"\r\n--" + boundary, bytearray(b"\r\n")  # as if a part had ended before the first

    async def more() -> None:
        try:
            buffer.extend(await anext(pieces))
        except StopAsyncIteration:
            raise _broken("it ends too early") from None

    while len(buffer) < len(border):
        await more()
    if not buffer.startswith(border):
        raise _broken("it does not begin with its boundary")
    for _ in range(PARTS + 1):
        del buffer[: len(border)]
        while len(buffer) < 2:
            await more()
        if buffer.startswith(b"--"):
            async for _rest in pieces:  # bytes after the last part mean nothing
                pass
            return
        part = await _head(buffer, more)
        while (end := buffer.find(border)) < 0:
            sure = len(buffer) - len(border) + 1  # bytes before any possible beginning of a border
            if sure > 0:
                yield part, bytes(buffer[:sure])
                del buffer[:sure]
            await more()
        yield part, bytes(buffer[:end])
        del buffer[:end]
    raise _broken(f"it has more than {PARTS} parts")


async def _head(buffer: bytearray, more: Callable[[], Awaitable[None]]) -> FormPart:
    """Read the headers of a part; the buffer begins with its content then."""
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        if len(buffer) > HEADERS:
            raise _broken(f"a part has more than {HEADERS:,} bytes of headers")
        await more()
    if end > HEADERS or not buffer.startswith(b"\r\n"):
        raise _broken("a part begins with its headers")
    match = _DISPOSITION.search(bytes(buffer[:end]))
    params = {name.lower(): value for name, value in _PARAM.findall(match[1])} if match else {}
    if b"name" not in params:
        raise _broken("a part has no name")
    del buffer[: end + 4]
    filename = params.get(b"filename")
    return FormPart(_text(params[b"name"]), None if filename is None else _text(filename))


def _text(value: bytes) -> str:
    return printable(re.sub(rb"\\(.)", rb"\1", value), 255)


def _broken(what: str) -> RequestError:
    return RequestError(f"the form cannot be read: {what}", param="body")
