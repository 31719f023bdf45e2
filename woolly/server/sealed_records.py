"""Records on disk: a private file each, whose first line has the digest of all that follows.

A file that is not exactly what was written is removed when it is read, and not used.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from woolly.errors import WoollyError
from woolly.io.files import read_bytes


class _Record(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=_Record)


def seal(magic: bytes, record: msgspec.Struct) -> bytes:
    """The bytes of a file."""
    body = msgspec.json.encode(record)
    return magic + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unseal(magic: bytes, data: bytes, kind: type[T]) -> T:
    """What a file holds; raises ValueError where it is not what `seal` wrote."""
    head, _, body = data.partition(b"\n")
    if head != magic + hashlib.sha256(body).hexdigest().encode():
        raise ValueError("not what was written")
    return msgspec.json.decode(body, type=kind)


def stored(folder: Path, prefix: str, magic: bytes, kind: type[R], most: int) -> list[R]:
    """The records of a folder, each under its own id; files that are not right are removed."""
    records: list[R] = []
    for path in sorted(folder.glob(f"{prefix}*.json")):
        try:
            record = unseal(magic, read_bytes(path, most), kind)  # type: ignore[type-var]
            if path.stem != record.id or not re.fullmatch(rf"{prefix}[0-9a-f]{{24}}", record.id):
                raise ValueError("of another record")
            records.append(record)
        except (WoollyError, ValueError):
            with suppress(OSError):
                path.unlink()
    return records
