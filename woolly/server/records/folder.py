"""The files of records. Every call touches the disk, waits for it, and has errors that name no path."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Generic

from woolly.errors import FileError, NotFoundError, printable
from woolly.io.disk import PART, disk_faults, sync_folder
from woolly.io.files import read_bytes, write_private
from woolly.server.records.kind import DamagedError, R, RecordKind

SUGGESTION = "make room on the disk of the server"
STALE_S = 3600.0  # after which an unfinished file is left over from a process that was killed

_log = logging.getLogger("woolly")


class RecordFolder(Generic[R]):
    """complete: whether what was read is a record."""

    def __init__(self, path: Path, kind: RecordKind[R], complete: Callable[[R], bool]) -> None:
        self.path = path
        self._kind = kind
        self._the = f"the {kind.noun}"
        self._complete = complete
        self._reported: set[str] = set()  # ids of files that were logged

    def ids(self) -> set[str]:
        """The ids of all files; unfinished ones that are left over are removed."""
        ids = set()
        with (
            disk_faults(f"no {self._kind.noun} can be read now", suggestion=""),
            suppress(FileNotFoundError),
            os.scandir(self.path) as entries,
        ):
            for entry in entries:
                if id_ := self._kind.id_of(entry.name):
                    ids.add(id_)
                elif entry.name.startswith((PART, f".{self._kind.prefix}")):  # the second: of Woolly 0.1
                    with suppress(OSError):  # another server of this user may be writing
                        if time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_S:
                            os.unlink(entry.path)
        return ids

    def read_each(self, ids: Iterable[str]) -> dict[str, R | None]:
        """The records of these files, as far as they can be read now; None where there is none any more."""
        records: dict[str, R | None] = {}
        unread: dict[str, Exception] = {}
        for id_ in ids:
            try:
                records[id_] = self.read(id_)
            except (FileError, ValueError) as error:
                unread[id_] = error
        if unread.keys() - self._reported:
            self._reported |= unread.keys()
            id_, reason = next(iter(unread.items()))
            many = f"{len(unread)} files in " if len(unread) > 1 else ""
            place = printable(self.path if many else self._file(id_), 300)
            _log.warning("woolly: %s'%s' cannot be used now: %s", many, place, printable(reason, 300))
        return records

    def read(self, id_: str) -> R | None:
        """The record of a file; None where there is none any more, and where it was set aside. Raises FileError or
        ValueError where this file cannot be read now, and BusyError where no file can."""
        path = self._file(id_)
        with disk_faults(f"{self._the} cannot be read"):
            try:
                record = self._kind.unseal(read_bytes(path, self._kind.most, name=self._the))
                if record.id != id_:
                    raise ValueError("it has the record of another")
                return record if self._complete(record) else None
            except NotFoundError:
                return None
            except DamagedError as error:
                aside = path.with_name(f"{path.name}.damaged-{time.time_ns():x}")
                os.rename(path, aside)
                _log.warning("woolly: '%s' is damaged: %s; it is '%s' now", printable(path, 300), error, aside.name)
                return None

    def write(self, id_: str, data: bytes, then: Callable[[], object] | None, *, fresh: bool) -> None:
        """Write a file, and do what comes then. Where a fresh one fails, there is none."""
        path = self._file(id_)
        try:
            write_private(path, data, name=self._the, suggestion=SUGGESTION)
            with disk_faults(f"{self._the} cannot be written", suggestion=SUGGESTION):
                if then is not None:
                    then()
        except BaseException:
            if fresh:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            raise

    def remove(self, id_: str, first: Callable[[], object] | None) -> None:
        with disk_faults(f"{self._the} cannot be removed"), suppress(FileNotFoundError):
            if first is not None:
                first()
            self._file(id_).unlink()
            sync_folder(self.path)

    def _file(self, id_: str) -> Path:
        return self.path / f"{id_}.json"
