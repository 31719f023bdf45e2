"""The records of one kind. Owned by the event loop; the disk is touched in threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Generic
from weakref import WeakValueDictionary

from woolly.errors import FileError, WoollyError
from woolly.server.records.folder import RecordFolder
from woolly.server.records.kind import R, RecordKind

AGAIN_S = 1.0  # until files that could not be read are tried again


def _always(record: object) -> bool:
    return True


class RecordStore(Generic[R]):
    """complete: whether what was read is a record; asked in a thread."""

    def __init__(self, path: Path, kind: RecordKind[R], *, complete: Callable[[R], bool] = _always) -> None:
        self._kind = kind
        self._folder = RecordFolder(path, kind, complete)
        self._records: dict[str, R] = {}
        self._listed = False
        self._unread: set[str] = set()  # ids whose files are there and could not be read
        self._again_s = 0.0  # the time of the monotonic clock at which these are tried again
        self._reading = asyncio.Lock()
        self._order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of the writes of each record
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def known(self) -> Collection[R]:
        """The records that were read or written."""
        return self._records.values()

    @property
    def unread(self) -> bool:
        """Whether there are files that could not be read; `load` tries them again."""
        return not self._listed or bool(self._unread)

    async def of(self, owner: str) -> list[R]:
        """The records of a caller."""
        await self.load()
        return [record for record in self._records.values() if record.owner == owner]

    async def get(self, owner: str, id_: str) -> R | None:
        """A record of a caller; None where it has none of that id."""
        await self.load()
        if id_ in self._unread:
            await self.load(id_)
            if id_ in self._unread:
                raise self._unreadable()
        record = self._records.get(id_)
        return record if record is not None and record.owner == owner else None

    async def load(self, id_: str = "") -> None:
        """Read the files that were not read yet, at first all of them. id_: this one at once, and no other."""
        async with self._reading:
            if not self._listed:
                self._unread = await asyncio.to_thread(self._folder.ids)
                self._listed = True
            elif not id_ and (not self._unread or time.monotonic() < self._again_s):
                return
            ids = {id_} & self._unread if id_ else set(self._unread)
            for one, record in (await asyncio.to_thread(self._folder.read_each, ids)).items():
                if one in self._unread:  # not written meanwhile
                    self._unread.discard(one)
                    if record is not None:
                        self._records[one] = record
            if not id_:
                self._again_s = time.monotonic() + AGAIN_S

    async def put(self, record: R, *, then: Callable[[], object] | None = None) -> None:
        """Write a record, as it is when its turn has come. then: done in the same thread when it is on the disk; where
        that fails, a new record was never there."""
        await self.load()
        await self._in_order(record.id, partial(self._write, record, then))

    async def change(self, record: R, **fields: Any) -> None:
        """Give fields of a record other values, and write it, unless it was removed. Where that fails, they have their
        old values again."""
        before = {name: getattr(record, name) for name in fields}
        for name, value in fields.items():
            setattr(record, name, value)
        try:
            await self._in_order(record.id, partial(self._rewrite, record))
        except WoollyError:
            for name, value in before.items():
                if getattr(record, name) is fields[name]:  # not changed again meanwhile
                    setattr(record, name, value)
            raise

    async def remove(self, record: R, *, first: Callable[[], object] | None = None) -> None:
        """Remove a record. first: done in the same thread before its file goes."""
        await self._in_order(record.id, partial(self._remove, record.id, first))

    async def on_disk(self, id_: str) -> R | None:
        """A record as its file has it now: another server of the same user may have written it."""
        try:
            return await asyncio.to_thread(self._folder.read, id_)
        except (FileError, ValueError):
            raise self._unreadable() from None

    async def _in_order(self, id_: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Work on the file of a record after all earlier work. A caller that goes away meanwhile stops nothing."""
        lock = self._order.setdefault(id_, asyncio.Lock())

        async def in_turn() -> None:
            async with lock:
                await work()

        writing = asyncio.create_task(in_turn())
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        await asyncio.shield(writing)

    async def _write(self, record: R, then: Callable[[], object] | None = None) -> None:
        data, fresh = self._kind.seal(record), record.id not in self._records and record.id not in self._unread
        await asyncio.to_thread(self._folder.write, record.id, data, then, fresh=fresh)
        self._unread.discard(record.id)
        self._records[record.id] = record

    async def _rewrite(self, record: R) -> None:
        if record.id in self._records:
            await self._write(record)

    async def _remove(self, id_: str, first: Callable[[], object] | None) -> None:
        await asyncio.to_thread(self._folder.remove, id_, first)
        self._records.pop(id_, None)

    def _unreadable(self) -> FileError:
        what = f"the {self._kind.noun} cannot be read now"
        return FileError(what, suggestion="the log of the server tells why", code="disk_error")
