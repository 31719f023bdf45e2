"""Files that the server keeps for its callers: what they upload for a batch, and the answers of batches.

What holds:
- Only the caller that uploaded a file, or whose batch made it, can see, read or delete it.
- A file exists when its record and its content do: the content is whole on the disk before the record
  is written, and gets its name after that. What an upload that broke off leaves behind is removed.
- The files of a caller, and of all callers, are limited: one more is refused, and no old one is removed for it. It
  counts from before its first byte is read, and what a batch has answered so far counts, too.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TypeVar

import msgspec

from woolly.config.serving import Serving
from woolly.errors import BusyError, NotFoundError, RequestError
from woolly.io.disk import PART, disk_fault, make_private_folder, move, private_opener, write_all
from woolly.server.accounts import Accounts, Resource
from woolly.server.http.caller import has_key
from woolly.server.records import RecordKind, RecordStore

T = TypeVar("T")
WITHOUT_KEY = 4096  # files of all callers without a key together: addresses are many
WRITE = 1 << 20  # bytes of an upload that are collected before a thread writes them


class StoredFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The record of a file."""

    id: str
    owner: str
    filename: str
    purpose: str
    created: int
    nbytes: int


KIND = RecordKind("file-", b"woolly file 1 ", StoredFile, 16 << 10, noun="file", too_large="give it a shorter name")


def new_id() -> str:
    return f"file-{secrets.token_hex(12)}"


class Files:
    """All files of a server. Owned by the event loop; the disk is touched in threads."""

    def __init__(self, folder: Path, limits: Serving, accounts: Accounts) -> None:
        self.folder = folder
        self._limits = limits
        self._accounts = accounts
        self._records = RecordStore(folder, KIND, complete=self._has_content)
        self._growing: dict[str, tuple[str, int]] = {}  # owner and bytes, by the id that a file will have

    async def of(self, owner: str) -> list[StoredFile]:
        """The files of a caller, the newest first."""
        return sorted(await self._records.of(owner), key=lambda file: (-file.created, file.id))

    async def get(self, owner: str, id_: str) -> StoredFile:
        file = await self._records.get(owner, id_)
        if file is None:
            raise NotFoundError("there is no such file", suggestion="upload it first", param="file_id")
        return file

    def path(self, id_: str) -> Path:
        """Where the content of a file lies, or will lie."""
        return self.folder / id_

    async def check_room(self, owner: str) -> None:
        """Refuse one more file where a limit is reached."""
        mine, limits, uploads = await self.of(owner), self._limits, self._accounts.out
        _check(len(mine) + uploads(Resource.UPLOADS, owner), limits.files_per_key, "files")
        if not has_key(owner):
            strangers = sum(not has_key(file.owner) for file in self._records.known)
            _check(strangers + uploads(Resource.UPLOADS), WITHOUT_KEY, "files of callers without a key")
        _check(self._nbytes(owner), limits.file_bytes_per_key, "bytes of files")
        _check(self._nbytes(), limits.file_bytes_in_all, "bytes of everybody's files")

    def grow(self, owner: str, id_: str, nbytes: int) -> None:
        """Count what a batch has written of a file as its caller's, which it will be when the batch has ended."""
        self._growing[id_] = owner, nbytes

    def check_growth(self, owner: str) -> None:
        """Refuse more bytes where a limit is reached: for good where it is the caller's own, and for as long as there
        is no room (BusyError) where others have it."""
        _check(self._nbytes(owner), self._limits.file_bytes_per_key, "bytes of files")
        if self._nbytes() >= self._limits.file_bytes_in_all:
            raise BusyError("there is no room for more bytes of everybody's files", suggestion="delete some")

    def _nbytes(self, owner: str | None = None) -> int:
        """Bytes of all files, or of a caller's, with those that grow and those that are being uploaded."""
        files = ((file.owner, file.nbytes) for file in self._records.known if file.id not in self._growing)
        nbytes = sum(nbytes for name, nbytes in (*files, *self._growing.values()) if owner in (None, name))
        return nbytes + self._accounts.out(Resource.UPLOAD_BYTES, owner)

    @asynccontextmanager
    async def room(self, owner: str, announced: int) -> AsyncIterator[None]:
        """Room for a file while it is uploaded. announced: its bytes, where the client has told them."""
        await self.check_room(owner)
        nbytes = announced or self._limits.file_bytes
        with (
            self._accounts.take(owner, Resource.UPLOADS),
            self._accounts.take(owner, Resource.UPLOAD_BYTES, nbytes),
        ):
            yield

    async def save(self, pieces: AsyncIterator[bytes]) -> Path:
        """Write the content of a file to a path of its own; `add` makes it a file of a caller."""
        path = self.folder / f"{PART}{secrets.token_hex(12)}"
        waiting = bytearray()
        try:
            with await to_its_end(partial(_begin, path)) as file:
                async for piece in pieces:
                    waiting += piece
                    if len(waiting) >= WRITE:
                        await to_its_end(partial(write_all, file.write, waiting))
                        waiting = bytearray()
                await to_its_end(partial(write_all, file.write, waiting))
                await to_its_end(partial(os.fsync, file.fileno()))
        except BaseException as error:
            with suppress(OSError):
                await asyncio.to_thread(path.unlink)
            if isinstance(error, OSError):
                raise disk_fault("the file cannot be kept", error) from None
            raise
        return path

    async def add(self, owner: str, id_: str, filename: str, purpose: str, path: Path) -> StoredFile:
        """Make the file at a path one of a caller; doing so again changes nothing."""
        nbytes = await asyncio.to_thread(_size, path, self.path(id_))
        file = StoredFile(id_, owner, filename, purpose, int(time.time()), nbytes)
        await self._records.put(file, then=lambda: _move(path, self.path(id_)))
        self._growing.pop(id_, None)
        return file

    async def delete(self, file: StoredFile) -> None:
        """Delete the content first: a record without it counts as deleted."""
        await self._records.remove(file, first=lambda: self.path(file.id).unlink(missing_ok=True))

    def _has_content(self, file: StoredFile) -> bool:
        with suppress(FileNotFoundError):
            return stat.S_ISREG(self.path(file.id).stat().st_mode)
        return False


async def to_its_end(work: Callable[[], T]) -> T:
    """Use an open file in a thread. A caller that is cancelled waits for the thread, before it closes the file."""
    done = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


def _check(count: int, most: int, what: str) -> None:
    if count >= most:
        raise RequestError(
            f"there are {count:,} {what} already; {most:,} are kept",
            suggestion="delete some",
            code="payload_too_large",
        )


def _begin(path: Path) -> FileIO:
    make_private_folder(path.parent)
    return open(path, "xb", opener=private_opener, buffering=0)


def _size(path: Path, to: Path) -> int:
    """The size of a file that is to be moved, or was moved already."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return to.stat().st_size


def _move(path: Path, to: Path) -> None:
    """Give a file its name, unless it has it already."""
    with suppress(FileNotFoundError):
        move(path, to)
