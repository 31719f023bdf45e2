"""Files that the server keeps for its callers: what they upload for a batch, and what batches answer.

What holds:
- Nobody but the caller that uploaded a file, or whose batch made it, can see, read or delete it.
- A file is there when its record is, and the record is written when the whole file is on the disk. What an upload that
  broke off has left is removed.
- What a caller has, and what all have, is bounded: one more file is refused, and none is ever taken away.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec

from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.limits import Serving
from woolly.server.sealed import seal, stored
from woolly.store.disk import disk_code, make_private, own
from woolly.store.files import write_private

MAGIC = b"woolly file 1 "
RECORD = 16 << 10  # bytes of one, at the most
PART, STALE_S = ".part-", 3600.0


class Kept(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The record of a file."""

    id: str
    owner: str
    filename: str
    purpose: str
    created: int
    nbytes: int


def new_id() -> str:
    return f"file-{secrets.token_hex(12)}"


class Files:
    """All files of a server. Owned by the event loop; the disk is touched in threads."""

    def __init__(self, folder: Path, limits: Serving) -> None:
        self.folder = folder
        self._limits = limits
        self._files: dict[str, Kept] = {}
        self._ready = asyncio.Lock()
        self._read = False

    async def of(self, owner: str) -> list[Kept]:
        """Those of a caller, the newest first."""
        await self._load()
        mine = [kept for kept in self._files.values() if kept.owner == owner]
        return sorted(mine, key=lambda kept: (-kept.created, kept.id))

    async def get(self, owner: str, id_: str) -> Kept:
        await self._load()
        kept = self._files.get(id_)
        if kept is None or kept.owner != owner:
            raise NotFoundError("there is no such file", suggestion="upload it first", param="file_id")
        return kept

    def path(self, id_: str) -> Path:
        """Where the content of a file lies, or will lie."""
        return self.folder / id_

    async def check_room(self, owner: str) -> None:
        """Raise where a caller can have no more."""
        mine, limits = await self.of(owner), self._limits
        for count, most, what in (
            (len(mine), limits.files_per_key, "files"),
            (sum(kept.nbytes for kept in mine), limits.file_bytes_per_key, "bytes of files"),
            (sum(kept.nbytes for kept in self._files.values()), limits.file_bytes_in_all, "bytes of everybody's files"),
        ):
            if count >= most:
                raise RequestError(
                    f"there are {count:,} {what} already; {most:,} are kept",
                    suggestion="delete some",
                    code="payload_too_large",
                )

    async def save(self, pieces: AsyncIterator[bytes]) -> Path:
        """Write the content of a file beside the others; it is nobody's yet."""
        path = self.folder / f"{PART}{secrets.token_hex(12)}"
        await asyncio.to_thread(make_private, self.folder)
        try:
            with open(path, "xb", opener=own) as file:
                async for piece in pieces:
                    file.write(piece)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
        except BaseException as error:
            with suppress(OSError):
                path.unlink()
            if isinstance(error, OSError):
                raise FileError(
                    f"the file cannot be kept: {printable(error.strerror or error)}",
                    suggestion="make room on the disk of the server",
                    code=disk_code(error),
                ) from None
            raise
        return path

    async def add(self, owner: str, id_: str, filename: str, purpose: str, path: Path) -> Kept:
        """Keep what lies at a path, which is moved, under this id; doing so again changes nothing."""
        await self._load()
        nbytes = await asyncio.to_thread(_move, path, self.path(id_))
        kept = Kept(id_, owner, filename, purpose, int(time.time()), nbytes)
        await asyncio.to_thread(
            write_private, self._record(id_), seal(MAGIC, kept), suggestion="make room on the disk of the server"
        )
        self._files[id_] = kept
        return kept

    async def delete(self, kept: Kept) -> None:
        self._files.pop(kept.id, None)
        for path in (self.path(kept.id), self._record(kept.id)):  # a record without content is none
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def _record(self, id_: str) -> Path:
        return self.folder / f"{id_}.json"

    async def _load(self) -> None:
        async with self._ready:
            if not self._read:
                self._files = {kept.id: kept for kept in await asyncio.to_thread(self._stored)} | self._files
                self._read = True

    def _stored(self) -> list[Kept]:
        for part in self.folder.glob(f"{PART}*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > STALE_S:  # another server of this user may be writing
                    part.unlink()
        return [kept for kept in stored(self.folder, "file-", MAGIC, Kept, RECORD) if self.path(kept.id).is_file()]


def _move(path: Path, to: Path) -> int:
    """Put a file in its place, unless it is there already; its size."""
    with suppress(FileNotFoundError):
        os.replace(path, to)
    return to.stat().st_size
