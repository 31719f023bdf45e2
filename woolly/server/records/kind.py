"""A kind of records, and the bytes of a file: a line with the kind, its version and a digest of the rest, then JSON."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from woolly.errors import RequestError

DIGEST = 64  # hexadecimal digits


class Record(Protocol):
    """A Struct of msgspec that belongs to a caller."""

    @property
    def id(self) -> str: ...
    @property
    def owner(self) -> str: ...


R = TypeVar("R", bound=Record)


class DamagedError(ValueError):
    """The bytes are not those that were written."""


@dataclass(frozen=True, slots=True)
class RecordKind(Generic[R]):
    """prefix: of its ids, and so of its files. magic: how a file begins. most: bytes of a file. noun: what errors call
    a record. too_large: what they tell to do about one that would have more bytes."""

    prefix: str
    magic: bytes
    struct: type[R]
    most: int
    noun: str
    too_large: str

    def seal(self, record: R) -> bytes:
        """The bytes of a file."""
        body = msgspec.json.encode(record)
        data = self.magic + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        if len(data) > self.most:
            raise RequestError(
                f"the {self.noun} would have more than {self.most:,} bytes",
                suggestion=self.too_large,
                code="payload_too_large",
            )
        return data

    def unseal(self, data: bytes) -> R:
        """The record of a file. Raises DamagedError where it is not what was written, and another ValueError where it
        was written by another version."""
        head, _, body = data.partition(b"\n")
        if head[-DIGEST:] != hashlib.sha256(body).hexdigest().encode():
            raise DamagedError("its digest is not that of its contents")
        if head[:-DIGEST] != self.magic:
            raise ValueError("another version of Woolly has written it")
        return msgspec.json.decode(body, type=self.struct)

    def id_of(self, filename: str) -> str:
        """The id of the record in a file of that name; empty where such a file has none."""
        match = re.fullmatch(rf"({self.prefix}[0-9a-f]{{24}})\.json", filename)
        return match[1] if match else ""
