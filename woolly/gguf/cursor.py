"""The one way to read a number or a text out of a header: check the bytes left first, then read.

Every read goes through `need`, which compares with the bytes left; no position is ever computed that has not passed it.
Python's integers do not wrap, so a product or a sum of numbers from the file is exact before it is compared.
"""

from __future__ import annotations

import struct
from typing import Any

from woolly.errors import FileError, printable
from woolly.limits import LIMITS

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in the mapped bytes of a file, which only moves forward and never past the end."""

    __slots__ = ("at", "data", "end", "name", "where")

    def __init__(self, data: memoryview, name: str) -> None:
        self.data = data
        self.at = 0
        self.end = min(len(data), LIMITS.header)
        self.name = printable(name)
        self.where = "in the header"  # for messages: what was read last, or is being read

    def fail(self, message: str, **facts: Any) -> FileError:
        """An error that names the file, the place and the byte."""
        return FileError(
            f"{self.name}: {message} ({self.where}, byte {self.at:,})", file=self.name, offset=self.at, **facts
        )

    def need(self, n: int, what: str) -> int:
        """Make sure of n more bytes, step over them and return where they begin."""
        left = self.end - self.at
        if n > left:
            if self.end < len(self.data):
                raise self.fail(f"{what} passes the limit of {LIMITS.header:,} bytes for metadata and tensor table")
            raise self.fail(f"{what} needs {n:,} bytes but the file ends after {left:,}; it is cut or damaged")
        start = self.at
        self.at += n
        return start

    def number(self, shape: struct.Struct, what: str) -> Any:
        """One number of the given struct."""
        return shape.unpack_from(self.data, self.need(shape.size, what))[0]

    def u32(self, what: str) -> int:
        value: int = self.number(_U32, what)
        return value

    def u64(self, what: str) -> int:
        value: int = self.number(_U64, what)
        return value

    def fits(self, n: int, limit: int, smallest: int, what: str) -> int:
        """A number of records that follow, compared with the limit and with what the bytes left could hold."""
        if n > limit:
            raise self.fail(f"{what} is {n:,}, over the limit of {limit:,}")
        most = (self.end - self.at) // smallest
        if n > most:
            raise self.fail(f"{what} is {n:,} but the bytes left hold at most {most:,}; the file is cut or damaged")
        return n

    def string(self, limit: int, what: str) -> bytes:
        """The bytes of a string; its length is compared before anything is read or copied."""
        n = self.u64(f"the length of {what}")
        if n > limit and n <= self.end - self.at:
            raise self.fail(f"{what} has {n:,} bytes, over the limit of {limit:,}")
        start = self.need(n, what)
        return bytes(self.data[start : start + n])

    def label(self, limit: int, what: str) -> str:
        """A key or tensor name: 1 .. limit bytes of printable ASCII."""
        raw = self.string(limit, what)
        if not raw:
            raise self.fail(f"{what} is empty")
        text = raw.decode("ascii", "replace")
        if not (raw.isascii() and text.isprintable()):
            raise self.fail(f"{what} '{printable(raw)}' is not printable ASCII")
        return text

    def text(self, limit: int, what: str) -> str:
        """A string value: UTF-8."""
        try:
            return self.string(limit, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8: {error.reason} at its byte {error.start:,}") from None
