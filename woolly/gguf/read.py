"""Open a GGUF file, or all files of a split set, as read-only maps.

A file may shrink, change or fail while it is read. A page that is gone reads as zeros instead of ending the process
(`_core.MappedRegion`); what was read is valid only once `check_unchanged` has passed: leaving a `with` block calls it.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from woolly import system
from woolly._core import MappedRegion
from woolly.errors import BusyError, FileError, NotFoundError, WoollyError, printable
from woolly.gguf.header import Header, TensorInfo, read_header
from woolly.gguf.kinds import seems_to_be
from woolly.gguf.values import Metadata
from woolly.io.disk import disk_fault
from woolly.limits import LIMITS


@dataclass(frozen=True, slots=True)
class Source:
    """A mapped file and what is needed to notice that it changes."""

    handle: int
    facts: os.stat_result
    map: mmap.mmap
    view: memoryview
    region: MappedRegion

    def check_unchanged(self, path: Path) -> None:
        """FileError when the file is no longer what it was when it was opened."""
        was, now = self.facts, os.fstat(self.handle)
        if (was.st_size, was.st_mtime_ns) != (now.st_size, now.st_mtime_ns) or len(self.view) != was.st_size:
            raise _changed(path)
        at = self.region.broken_at
        if at >= 0:
            raise _bad(path, f"cannot be read at byte {at:,}: the disk or the network failed", offset=at)

    def close(self) -> None:
        os.close(self.handle)
        with contextlib.suppress(BufferError):  # a view still in use keeps the map, and its region, until it is dropped
            self.view.release()
            self.map.close()
            self.region.close()


@dataclass(frozen=True, slots=True)
class Part:
    """One mapped file of a set; most sets have one."""

    path: Path
    source: Source
    header: Header

    @property
    def meta(self) -> Metadata:
        return self.header.meta

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self.header.tensors

    @property
    def view(self) -> memoryview:
        return self.source.view

    @property
    def size(self) -> int:
        return len(self.source.view)

    @property
    def unused(self) -> int:
        """Bytes of the data that belong to no tensor, not counting the padding behind each."""
        step, at, gaps = self.header.alignment, self.header.start, 0
        for info in sorted(self.tensors.values(), key=lambda info: info.offset):
            gaps += info.offset - at
            at = -(-(info.offset + info.nbytes) // step) * step
        return gaps + max(0, self.size - at)


class GgufFile:
    """An open GGUF file, or split set. `close` it, or use it in a `with` block."""

    def __init__(self, path: Path, parts: tuple[Part, ...], tensors: Mapping[str, TensorInfo]) -> None:
        self.path = path
        self.parts = parts
        self.meta = parts[0].meta
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(dict(tensors))
        self.size = sum(part.size for part in parts)
        self._open = True

    def data(self, name: str) -> memoryview:
        """The bytes of a tensor: a read-only view of the mapped file, nothing is copied."""
        info = self._info(name)
        return self.parts[info.part].view[info.offset : info.offset + info.nbytes]

    def release(self, name: str) -> None:
        """Tell the system that pages up to the tensor's end are not needed for now; they come back when touched.

        The pages before the tensor too: reading a page may map its neighbours, also those of tensors released earlier.
        """
        info = self._info(name)
        if hasattr(mmap, "MADV_DONTNEED"):
            self.parts[info.part].source.map.madvise(mmap.MADV_DONTNEED, 0, info.offset + info.nbytes)

    def _info(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise FileError(f"{printable(self.path.name)}: there is no tensor '{printable(name)}'", tensor=name)
        return info

    def check_unchanged(self) -> None:
        """FileError when a part changed or failed since it was opened: what was read from it may then be wrong."""
        for part in self.parts:
            part.source.check_unchanged(part.path)

    def close(self) -> None:
        """Unmap the file. Safe to call twice."""
        for part in self.parts if self._open else ():
            part.source.close()
        self._open = False

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._open and (kind is None or issubclass(kind, WoollyError)):
                self.check_unchanged()
        finally:
            self.close()


def open(path: str | os.PathLike[str]) -> GgufFile:
    """Map a GGUF file, or all parts of the split set that it belongs to, and check the header."""
    path = Path(path)
    with contextlib.ExitStack() as opened:  # closes what is open already when a later check fails
        part = _open_part(path)
        opened.callback(part.source.close)
        parts: tuple[Part, ...] = (part,)
        if "split.count" in part.meta:
            parts = tuple(_open_set(path, part, opened))
        tensors: dict[str, TensorInfo] = {}
        for number, one in enumerate(parts):
            for info in one.tensors.values():
                if info.name in tensors:
                    raise _bad(one.path, f"tensor '{info.name}' is in an earlier part too", tensor=info.name)
                tensors[info.name] = replace(info, part=number)
        if len(parts) > 1:
            count = parts[0].meta.get("split.tensors.count")
            if not isinstance(count, int) or count != len(tensors):
                raise _bad(path, f"split.tensors.count is {_shown(count)}, but the parts hold {len(tensors):,} tensors")
        opened.pop_all()
        return GgufFile(path, parts, tensors)


# -- one file


def _open_part(path: Path) -> Part:
    source = _map(path)
    try:
        try:
            return Part(path, source, read_header(source.view, path.name))
        except WoollyError:
            source.check_unchanged(path)  # a change while reading may have caused the error
            raise
    except BaseException:
        source.close()
        raise


def _map(path: Path) -> Source:
    """The bytes of a regular file that begins like GGUF; never waits on a pipe or reads a device."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.ENOENT
        if number in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise NotFoundError(f"{printable(path.name)}: there is no such file", file=path.name) from None
        if number == errno.ENXIO:
            raise _bad(path, "is not a regular file") from None
        if number in (errno.EMFILE, errno.ENFILE):
            raise disk_fault(f"{printable(path.name)}: cannot be opened", error) from None
        raise _bad(path, f"cannot be opened: {os.strerror(number or 0)}") from None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            if stat.S_ISDIR(facts.st_mode):
                raise _bad(path, "is a directory", suggestion="give the path of a .gguf file in it")
            raise _bad(path, "is not a regular file")
        if facts.st_size < 4:
            raise _bad(path, f"has {facts.st_size} bytes, too short to be a GGUF file")
        start = _first_bytes(handle, 64)
        if not start.startswith(b"GGUF"):
            raise _bad(path, f"is not a GGUF file: {seems_to_be(start)}", offset=0)
        mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        os.close(handle)
        if error.errno == errno.ENOMEM:
            raise _too_large(path, facts.st_size) from None
        raise _bad(path, f"cannot be read: {os.strerror(error.errno or 0)}", offset=0) from None
    except ValueError:  # the file was emptied after its size was read
        os.close(handle)
        raise _changed(path) from None
    except BaseException:
        os.close(handle)
        raise
    view = memoryview(mapped)
    return Source(handle, facts, mapped, view, MappedRegion(view))


def _too_large(path: Path, size: int) -> BusyError:
    """A limit on the address space (ulimit -v) counts the file, although reading it takes no memory."""
    free = system.memory()
    return BusyError(
        f"{printable(path.name)}: not enough memory: the file alone takes {size / 2**30:,.2f} GiB of address space, "
        f"{free / 2**30:,.2f} GiB are free",
        suggestion="raise the limit (ulimit -v), or use a smaller model",
        code="not_enough_memory",
        needed=size,
        available=free,
    )


def _first_bytes(handle: int, count: int) -> bytes:
    """The beginning of a file; a read may give less than was asked for, and only an empty one means the end."""
    start = b""
    while len(start) < count and (more := os.read(handle, count - len(start))):
        start += more
    return start


# -- split sets

_PART_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_PER_PART_KEYS = ("split.no", "general.alignment")  # may differ from part to part


def _open_set(path: Path, opened_part: Part, opened: contextlib.ExitStack) -> Iterator[Part]:
    """All parts of the set, in order; only files in the same folder whose names fit the pattern are looked at."""
    count = opened_part.meta["split.count"]
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LIMITS.parts:
        raise _bad(path, f"split.count is {_shown(count)}, 1 to {LIMITS.parts:,} are expected", key="split.count")
    name = _PART_NAME.fullmatch(path.name)
    if name is None and count == 1:
        yield opened_part
        return
    if name is None or int(name[3]) != count:
        raise _bad(
            path, f"split.count is {count}, so its name must be NAME-00001-of-{count:05}.gguf", key="split.count"
        )
    first: Part | None = None
    for number in range(count):
        part = opened_part
        if number != int(name[2]) - 1:
            try:
                part = _open_part(path.with_name(f"{name[1]}-{number + 1:05}-of-{count:05}.gguf"))
            except NotFoundError:
                raise _bad(path, f"part {number + 1} of {count} is missing", part=number + 1) from None
            opened.callback(part.source.close)
        first = first or part
        stated = part.meta.get("split.no")
        if not isinstance(stated, int) or stated != number:
            raise _bad(part.path, f"split.no is {_shown(stated)}, but the name says {number}", key="split.no")
        for key in part.meta:
            if key not in _PER_PART_KEYS and not part.meta.same(key, first.meta):
                raise _bad(part.path, f"'{printable(key)}' is not as in part 1; it belongs to another set", key=key)
        yield part


def _shown(value: object) -> str:
    return "missing" if value is None else printable(value)


def _changed(path: Path) -> FileError:
    return FileError(
        f"{printable(path.name)}: the file was changed while it was read",
        suggestion="wait until it is complete, then try again",
        file=path.name,
    )


def _bad(path: Path, message: str, **facts: Any) -> FileError:
    return FileError(f"{printable(path.name)}: {message}", file=path.name, **facts)
