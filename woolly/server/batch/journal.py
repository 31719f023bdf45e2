"""The output of a batch: lines that are appended whole and never changed, and where an interrupted job continues.

What holds at every moment, also after a kill: the output and the errors file together have the first rows of the input,
each once and in order, and perhaps the beginning of one more line, which is cut when the job goes on. Each line
has the id of its row under the job's terms: files of another input, seed or model are never continued.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import msgspec

from woolly.errors import BusyError, FileError, RequestError, printable
from woolly.io.disk import disk_fault, disk_faults, write_all
from woolly.io.lock import try_lock
from woolly.limits import LIMITS
from woolly.server.batch.answers import BEGINNING
from woolly.server.batch.rows import BatchRow
from woolly.system import user_path


class _Status(msgspec.Struct):
    status_code: int


class _Written(msgspec.Struct):
    """The fields of a written line that tell its row and the outcome."""

    id: str
    custom_id: str
    response: _Status


_read = msgspec.json.Decoder(_Written).decode


class _LineFile:
    """A file of lines, open for this process alone."""

    def __init__(self, path: Path, mode: int) -> None:
        self.name = printable(path, 300)
        try:
            self.handle = os.open(user_path(path), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
        except (OSError, ValueError) as error:
            raise disk_fault(f"{self.name} cannot be opened", error) from None
        try:
            if not stat.S_ISREG(os.fstat(self.handle).st_mode):
                raise FileError(
                    f"{self.name} is no ordinary file", suggestion="a job goes on by what it finds in its output"
                )
            if not try_lock(self.handle):
                raise BusyError(f"another process writes {self.name}", suggestion="wait for it, or name another")
        except BaseException:
            os.close(self.handle)
            raise

    def lines(self) -> Iterator[tuple[int, _Written]]:
        """Every whole line and where it begins. What follows the last one, the beginning of a line, is cut."""
        at = number = 0
        with disk_faults(f"{self.name} cannot be read"), open(os.dup(self.handle), "rb") as file:
            file.seek(0)
            while line := file.readline(LIMITS.batch_answer):
                number += 1
                if not line.endswith(b"\n"):
                    if len(line) == LIMITS.batch_answer or not _is_ours(line):
                        raise self._strange(number)
                    self.cut(at)
                    return
                try:
                    yield at, _read(line)
                except msgspec.DecodeError:
                    raise self._strange(number) from None
                at += len(line)

    def _strange(self, number: int) -> FileError:
        return FileError(f"{self.name}, line {number:,} is no row of a batch", suggestion="name another file")

    def cut(self, at: int) -> None:
        with self._written():
            os.ftruncate(self.handle, at)
            os.fsync(self.handle)

    def append(self, line: bytes) -> None:
        with self._written():
            write_all(partial(os.write, self.handle), line)

    def sync(self) -> None:
        with self._written():
            os.fsync(self.handle)

    def _written(self) -> AbstractContextManager[None]:
        what = f"{self.name} cannot be written"
        return disk_faults(what, suggestion="make room; the same command goes on where it ended")


class Journal:
    """The output of a job and, where failed rows have a file of their own, that too. Both are locked until `close`."""

    def __init__(self, output: Path, errors: Path | None = None, *, source: int = -1, mode: int = 0o666) -> None:
        """source: the handle of the input, which must be none of these files."""
        self._files: list[_LineFile] = []
        try:
            for path in (output, errors):
                if path is not None:
                    if any(_same(path, handle) for handle in (source, *(file.handle for file in self._files))):
                        raise RequestError(f"{printable(path, 300)} is named twice", suggestion="name another file")
                    self._files.append(_LineFile(path, mode))
        except BaseException:
            self.close()
            raise
        self._output, self._errors = self._files[0], self._files[-1]

    def resume(self, rows: Iterable[BatchRow]) -> tuple[int, int]:
        """Count the rows that are written already, and those of them that failed."""
        done = failed = 0
        output = self._output.lines()
        errors = self._errors.lines() if self._errors is not self._output else iter(())
        answered, refused = next(output, None), next(errors, None)
        for row in rows:
            if answered is not None and answered[1].custom_id == row.custom_id:
                self._check(self._output, answered[1], row)
                failed += answered[1].response.status_code != 200
                answered = next(output, None)
            elif refused is not None and refused[1].custom_id == row.custom_id:
                self._check(self._errors, refused[1], row)
                refused = next(errors, None)
                failed += 1
            else:
                break
            done += 1
        if answered is not None:
            raise FileError(
                f"{self._output.name}: the row '{printable(answered[1].custom_id)}' does not follow the one before it "
                "in the input",
                suggestion="name the errors file that belongs to it, or another output",
            )
        if refused is not None:  # a power cut kept more of this file than of the other
            self._errors.cut(refused[0])
        return done, failed

    def _check(self, file: _LineFile, written: _Written, row: BatchRow) -> None:
        if written.id != row.id:
            raise FileError(
                f"{file.name}: the row '{printable(row.custom_id)}' was made of another input, seed or model",
                suggestion="go on with the same, or name another output",
            )

    def add(self, line: bytes, *, failed: bool) -> None:
        (self._errors if failed else self._output).append(line)

    def sync(self) -> None:
        """Write all lines through to the disk, so that they outlive a power cut."""
        for file in self._files:
            file.sync()

    def close(self) -> None:
        for file in self._files:
            os.close(file.handle)


def _is_ours(torn: bytes) -> bool:
    """Whether a torn line is one of a batch, and no other text. A power cut may leave zeros at its end."""
    begun = torn.rstrip(b"\0")
    return begun.startswith(BEGINNING) or BEGINNING.startswith(begun)


def _same(path: Path, handle: int) -> bool:
    try:
        there = os.stat(user_path(path))
    except OSError:
        return False
    ours = os.fstat(handle) if handle >= 0 else None
    return ours is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
