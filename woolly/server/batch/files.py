"""Files that the server keeps for its callers: what they upload for a batch, and the answers of batches.

What holds:
- Only the caller that uploaded a file, or whose batch made it, can see, read or delete it.
- A file exists when its record does, and the record is written when the whole file is on the disk. What an upload that
  broke off leaves behind is removed.
- The files of a caller, and of all callers, are limited: one more is refused, and no old one is removed for it.
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

from woolly.config.serving import Serving
from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.io.disk import disk_code, make_private_folder, private_opener
from woolly.io.files import write_private
from woolly.server.sealed_records import seal, stored

MAGIC = b"woolly file 1 "
RECORD = 16 << 10  # most bytes of a record
PART, STALE_S = ".part-", 3600.0


class StoredFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
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
        self._files: dict[str, StoredFile] = {}
        self._ready = asyncio.Lock()
        self._read = False

    async def of(self, owner: str) -> list[StoredFile]:
        """The files of a caller, the newest first."""
        await self._load()
        mine = [file for file in self._files.values() if file.owner == owner]
        return sorted(mine, key=lambda file: (-file.created, file.id))

    async def get(self, owner: str, id_: str) -> StoredFile:
        await self._load()
        file = self._files.get(id_)
        if file is None or file.owner != owner:
            raise NotFoundError("there is no such file", suggestion="upload it first", param="file_id")
        return file

    def path(self, id_: str) -> Path:
        """Where the content of a file lies, or will lie."""
        return self.folder / id_

    async def check_room(self, owner: str) -> None:
        """Refuse one more file where a limit is reached."""
        mine, limits = await self.of(owner), self._limits
        for count, most, what in (
            (len(mine), limits.files_per_key, "files"),
            (sum(file.nbytes for file in mine), limits.file_bytes_per_key, "bytes of files"),
            (sum(file.nbytes for file in self._files.values()), limits.file_bytes_in_all, "bytes of everybody's files"),
        ):
            if count >= most:
                raise RequestError(
                    f"there are {count:,} {what} already; {most:,} are kept",
                    suggestion="delete some",
                    code="payload_too_large",
                )

    async def save(self, pieces: AsyncIterator[bytes]) -> Path:
        """Write the content of a file to a path of its own; `add` makes it a file of a caller."""
        path = self.folder / f"{PART}{secrets.token_hex(12)}"
        await asyncio.to_thread(make_private_folder, self.folder)
        try:
            with open(path, "xb", opener=private_opener) as file:
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

    async def add(self, owner: str, id_: str, filename: str, purpose: str, path: Path) -> StoredFile:
        """Move the file at a path to its place, and write its record; doing so again changes nothing."""
        await self._load()
        nbytes = await asyncio.to_thread(_move, path, self.path(id_))
        file = StoredFile(id_, owner, filename, purpose, int(time.time()), nbytes)
        await asyncio.to_thread(
            write_private, self._record(id_), seal(MAGIC, file), suggestion="make room on the disk of the server"
        )
        self._files[id_] = file
        return file

    async def delete(self, file: StoredFile) -> None:
        self._files.pop(file.id, None)
        for path in (self.path(file.id), self._record(file.id)):  # a record without content counts as deleted
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def _record(self, id_: str) -> Path:
        return self.folder / f"{id_}.json"

    async def _load(self) -> None:
        async with self._ready:
            if not self._read:
                self._files = {file.id: file for file in await asyncio.to_thread(self._stored)} | self._files
                self._read = True

    def _stored(self) -> list[StoredFile]:
        for part in self.folder.glob(f"{PART}*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > STALE_S:  # another server of this user may be writing
                    part.unlink()
        return [
            file for file in stored(self.folder, "file-", MAGIC, StoredFile, RECORD) if self.path(file.id).is_file()
        ]


def _move(path: Path, to: Path) -> int:
    """Move a file, unless that was done already; returns its size."""
    with suppress(FileNotFoundError):
        os.replace(path, to)
    return to.stat().st_size
