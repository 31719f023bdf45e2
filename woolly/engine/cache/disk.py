"""DiskStore: a folder of values that outlives the process. A value is there completely or not at all.

What always holds, whatever is killed, full, or used by several processes:

- A value is given back only if the digest at the beginning of its file is that of its name and its bytes. A torn file,
  a changed one or one under another name is never used, so no writer waits until its bytes are safe on the disk.
- A file gets its name when its last byte is written. The unfinished file of a process that died is removed by the next
  writer.
- All files together take at most `limit` bytes of the disk. The one used longest ago makes room, and use renews.
- A writer holds the lock of the folder, so that all processes count the same bytes. Where locks do not work, the limit
  may be exceeded.
- Files and folder are for their user alone, and a folder that others may change is not used.
- An error of the disk is logged once, and nothing is written for a while. No caller gets an exception for it.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from threading import Lock

from woolly.errors import printable
from woolly.io.disk import PART, make_private_folder, write_atomically
from woolly.io.lock import NoLocksError, open_lock, try_lock

DIGEST = 32  # bytes at the beginning of a file
BLOCK = 4096  # what a file takes on the disk is a multiple of it
PAUSE_S = 30.0  # without writing after an error of the disk
LOCK_S = 1.0  # that a writer waits for the lock at most
LOCK = ".lock"
NAME = re.compile(r"[0-9a-f]{32}")

_log = logging.getLogger("woolly")


def name_of(*parts: bytes) -> bytes:
    """The name of a value that depends on all these parts, and on where each ends."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


@dataclass(slots=True)
class Counts:
    """Counts of reads and writes since the start, and the bytes that lie in the folder."""

    hits: int = 0
    misses: int = 0
    written: int = 0
    removed: int = 0  # to make room for others
    rejected: int = 0  # their digest was wrong
    nbytes: int = 0


@dataclass(slots=True)
class _Entry:
    nbytes: int
    used_ns: int


class DiskStore:
    """Values by their names, of 16 bytes. Only `open`, `get` and `put` touch the disk, and wait for it.

    `get` and `put` may each be called by one thread.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit - BLOCK  # a block is for the lock file
        self._counts = Counts()
        self._files: dict[str, _Entry] = {}  # in order of use
        self._lock = Lock()  # for the files and the count of their bytes
        self._stamp = b""  # of the folder, as it was when this process last knew all of its files
        self._doubt = False  # a file may be there that is not in `_files`: the next writer looks
        self._paused_s = 0.0  # nothing is written before this time of the monotonic clock
        self._logged: set[str] = set()  # kinds of warnings that were logged

    def has(self, name: bytes) -> bool:
        """Whether the value was there when the folder was last looked at."""
        return name.hex() in self._files

    def counts(self) -> Counts:
        return replace(self._counts)

    def open(self) -> bool:
        """Make the folder, or look what is in it; False if it cannot be used."""
        try:
            make_private_folder(self.folder)
            facts = self.folder.stat()
            if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
                raise PermissionError(errno.EPERM, "others may change what is in it")
            with self._locked() as handle:
                self._look(handle)
                self._make_room(0, handle)
        except BlockingIOError:  # another process holds the lock for long: the first `put` reads the folder
            return True
        except OSError as error:
            self._refused(error)
            return False
        return True

    def get(self, name: bytes, nbytes: int) -> memoryview | None:
        """A value of so many bytes; None where there is none, or a damaged one."""
        key = name.hex()
        try:
            handle = os.open(self.folder / key, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(handle, "rb") as file:
                data = memoryview(file.read(DIGEST + nbytes + 1))
                with contextlib.suppress(OSError):  # a file whose time of use cannot be set can still be used
                    os.utime(handle)
        except OSError as error:
            self._forget(key)
            self._counts.misses += 1
            if not isinstance(error, FileNotFoundError):  # else another process has made room
                self._doubt = True
                self._log_once("read", f"cannot be read: {printable(error.strerror or error)}")
            return None
        if len(data) != DIGEST + nbytes or not hmac.compare_digest(data[:DIGEST], _digest(name, data[DIGEST:])):
            self._counts.rejected += 1
            self._forget(key)
            self._log_once("rejected", "has a file with other bytes than were written; it is removed, and made anew")
            with contextlib.suppress(OSError):
                os.unlink(self.folder / key)
            return None
        self._counts.hits += 1
        self._renew(key)
        return data[DIGEST:]

    def put(self, name: bytes, data: bytes) -> bool:
        """Keep a value, unless the disk cannot take it now; True if the folder has it."""
        key, need = name.hex(), _on_disk(DIGEST + len(data))
        if key in self._files:
            return True
        if need > self.limit or time.monotonic() < self._paused_s:
            return False
        try:
            with self._locked() as handle:
                self._look(handle)
                if key not in self._files:
                    self._make_room(need, handle)
                    write_atomically(self.folder / key, (_digest(name, data), data), durable=False)
                    with self._lock:
                        self._files[key] = _Entry(need, time.time_ns())
                        self._counts.nbytes += need
                        self._counts.written += 1
        except BlockingIOError:  # another process holds the lock for too long
            return False
        except OSError as error:
            self._refused(error)
            return False
        self._logged.discard("refused")
        return True

    def _make_room(self, need: int, handle: int) -> None:
        """Remove what was used longest ago, until so many bytes more are within the limit. Under the folder's lock.

        The stamp changes first: where this process dies before the end, the others read the folder again.
        """
        self._stamp = secrets.token_bytes(16)
        os.pwrite(handle, self._stamp, 0)
        while self._counts.nbytes + need > self.limit and self._files:
            with self._lock:
                key = next(iter(self._files))
                known = self._files[key]
            try:
                used_ns = os.stat(self.folder / key, follow_symlinks=False).st_mtime_ns
                if used_ns > known.used_ns:  # by another process
                    self._renew(key, used_ns)
                    continue
                os.unlink(self.folder / key)
                self._counts.removed += 1
            except FileNotFoundError:
                pass
            self._forget(key)

    def _look(self, handle: int) -> None:
        """Read what is in the folder, if another process has changed it. Under the folder's lock."""
        if self._stamp and not self._doubt and os.pread(handle, len(self._stamp), 0) == self._stamp:
            return
        self._doubt = False
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if NAME.fullmatch(entry.name):
                    with contextlib.suppress(FileNotFoundError):
                        one = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(one.st_mode):
                            files.append((one.st_mtime_ns, entry.name, _on_disk(one.st_size)))
                elif entry.name.startswith(PART):  # its writer held the lock that we hold now, so it has died
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
        with self._lock:
            self._files = {key: _Entry(nbytes, used_ns) for used_ns, key, nbytes in sorted(files)}
            self._counts.nbytes = sum(file.nbytes for file in self._files.values())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock of the folder; gives the open lock file, in which the stamp is."""
        handle = open_lock(self.folder / LOCK)
        try:
            with contextlib.suppress(NoLocksError):
                late = time.monotonic() + LOCK_S
                while not try_lock(handle):
                    if time.monotonic() > late:
                        raise BlockingIOError
                    time.sleep(0.002)
            yield handle
        finally:
            os.close(handle)

    def _renew(self, key: str, used_ns: int = 0) -> None:
        with self._lock:
            file = self._files.pop(key, None)
            if file is not None:
                self._files[key] = _Entry(file.nbytes, used_ns or time.time_ns())

    def _forget(self, key: str) -> None:
        with self._lock:
            file = self._files.pop(key, None)
            if file is not None:
                self._counts.nbytes -= file.nbytes

    def _refused(self, error: OSError) -> None:
        self._paused_s = time.monotonic() + PAUSE_S
        self._log_once("refused", f"is not written to: {printable(error.strerror or error)}; answers go on without it")

    def _log_once(self, what: str, sentence: str) -> None:
        if what not in self._logged:
            self._logged.add(what)
            _log.warning("woolly: the prefix cache in '%s' %s", printable(self.folder, 300), sentence)


def _digest(name: bytes, data: bytes | memoryview) -> bytes:
    digest = blake2b(name, digest_size=DIGEST)
    digest.update(data)
    return digest.digest()


def _on_disk(nbytes: int) -> int:
    return -(-nbytes // BLOCK) * BLOCK


class ModelDiskStore:
    """The values of one model in a disk store, by kind and digest. Its scope is a digest of everything but the tokens
    that the values depend on: the weights and the arithmetic. Until the scope is known it is empty and takes nothing.
    """

    def __init__(self, disk_store: DiskStore, scope: bytes | None = None) -> None:
        self.disk_store = disk_store
        self.closed = False
        self.opened: Callable[[], object] = lambda: None  # called once there is a scope
        self._scope = scope

    def open(self, scope: bytes) -> None:
        """Set the scope. Once, from any thread."""
        self._scope = scope
        self.opened()

    def counts(self) -> Counts:
        return self.disk_store.counts()

    @property
    def usable(self) -> bool:
        return self._scope is not None

    def has(self, kind: bytes, digest: bytes) -> bool:
        return self._scope is not None and self.disk_store.has(name_of(self._scope, kind, digest))

    def get(self, kind: bytes, digest: bytes, nbytes: int) -> memoryview | None:
        return None if self._scope is None else self.disk_store.get(name_of(self._scope, kind, digest), nbytes)

    def put(self, kind: bytes, digest: bytes, data: bytes) -> bool:
        return self._scope is not None and self.disk_store.put(name_of(self._scope, kind, digest), data)
