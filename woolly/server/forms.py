"""Forms with a file (multipart/form-data), read while they come: nothing of a file is kept in memory.

Only what clients of OpenAI's routes send is read: a boundary, parts with a name and perhaps a file name. Whatever else
stands where it could be one of these is refused.
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
class Part:
    name: str
    filename: str | None = None  # of a file


def boundary_of(content_type: str) -> bytes:
    """What separates the parts; raises RequestError where a body is no form."""
    match = _BOUNDARY.match(content_type)
    if match is None:
        raise RequestError(
            "the body is a form with a file: multipart/form-data",
            code="unsupported_media_type",
            param="Content-Type",
        )
    return (match[1] or match[2]).encode("latin-1")


async def parts(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncGenerator[tuple[Part, bytes], None]:
    """The contents of a form in pieces, each with the part that it is of; every part has at least one."""
    border, held = b"\r\n--" + boundary, bytearray(b"\r\n")  # as if a part had ended before the first

    async def more() -> None:
        try:
            held.extend(await anext(pieces))
        except StopAsyncIteration:
            raise _broken("it ends too early") from None

    while len(held) < len(border):
        await more()
    if not held.startswith(border):
        raise _broken("it does not begin with its boundary")
    for _ in range(PARTS + 1):
        del held[: len(border)]
        while len(held) < 2:
            await more()
        if held.startswith(b"--"):
            async for _rest in pieces:  # what follows the last part says nothing
                pass
            return
        part = await _head(held, more)
        while (end := held.find(border)) < 0:
            sure = len(held) - len(border) + 1  # what cannot be the beginning of a border
            if sure > 0:
                yield part, bytes(held[:sure])
                del held[:sure]
            await more()
        yield part, bytes(held[:end])
        del held[:end]
    raise _broken(f"it has more than {PARTS} parts")


async def _head(held: bytearray, more: Callable[[], Awaitable[None]]) -> Part:
    """What a part is; its content begins what is held then."""
    while (end := held.find(b"\r\n\r\n")) < 0:
        if len(held) > HEADERS:
            raise _broken(f"a part has more than {HEADERS:,} bytes of headers")
        await more()
    if end > HEADERS or not held.startswith(b"\r\n"):
        raise _broken("a part begins with its headers")
    found = _DISPOSITION.search(bytes(held[:end]))
    params = {name.lower(): value for name, value in _PARAM.findall(found[1])} if found else {}
    if b"name" not in params:
        raise _broken("a part has no name")
    del held[: end + 4]
    filename = params.get(b"filename")
    return Part(_text(params[b"name"]), None if filename is None else _text(filename))


def _text(value: bytes) -> str:
    return printable(re.sub(rb"\\(.)", rb"\1", value), 255)


def _broken(what: str) -> RequestError:
    return RequestError(f"the form cannot be read: {what}", param="body")
