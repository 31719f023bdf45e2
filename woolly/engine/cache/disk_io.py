"""DiskCacheIO: writes remembered pages and snapshots to the disk and reads them back, while steps are computed.

- Each page or snapshot is copied between two steps and written by a thread; no step waits for the disk, and no more
  than QUEUED bytes wait for it. One that is forgotten before its turn is not written.
- A sequence that could begin with pages of the disk waits outside the queue until they are read, one sequence after the
  other. Its `Fetch` holds the pages and the slot that are read into, so no step sees them before they are complete and
  remembered.
- No sequence waits for a disk that gives nothing for STALL_S: it begins with what was read until then.

Owned by the engine thread, except for `_write` and `_read`, which run beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Protocol, TypeAlias

from woolly.device.batch import SLOTS
from woolly.engine.cache.disk import ModelDiskStore
from woolly.engine.cache.pages import Fetch, Place
from woolly.engine.scheduler import Scheduler
from woolly.engine.sequence import Sequence
from woolly.system import check_thread

QUEUED = 32 << 20  # bytes that are copied and not yet written; one page or snapshot at least
STALL_S = 2.0
FLUSH_S = 1.0  # for what is not written yet when the engine ends

Worker: TypeAlias = Callable[[Callable[[], None] | None], object]
"""Does some work in another thread, after what it was given before; None ends it."""


class States(Protocol):
    """Where the state of pages and slots lies: a runner."""

    @property
    def page_bytes(self) -> tuple[int, ...]: ...
    def read_page(self, group: int, page: int) -> bytes: ...
    def write_page(self, group: int, page: int, data: bytes | memoryview) -> None: ...
    def read_slot(self, slot: int) -> bytes: ...
    def write_slot(self, slot: int, data: bytes | memoryview) -> None: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """The reader is done with a fetch."""

    fetch: Fetch


@dataclass(frozen=True, slots=True)
class Written:
    """The writer has room for more."""


def in_thread(name: str) -> Worker:
    works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def live() -> None:
        while (work := works.get()) is not None:
            work()

    check_thread()
    Thread(target=live, name=name, daemon=True).start()
    return works.put


class DiskCacheIO:
    """Writes pages and snapshots to a disk store and reads them back. tell: puts a command into the engine's inbox."""

    def __init__(
        self,
        disk_store: ModelDiskStore,
        states: States,
        scheduler: Scheduler,
        tell: Callable[[Fetched | Written], object],
        *,
        read_worker: Worker | None = None,
        write_worker: Worker | None = None,
    ) -> None:
        self.disk_store = disk_store
        self.pages = scheduler.pages
        self._scheduler = scheduler
        self._states = states
        self._tell = tell
        self._read_worker = read_worker or in_thread("woolly-disk-read")
        self._write_worker = write_worker or in_thread("woolly-disk-write")
        self._lock = Lock()
        self._nbytes = dict(enumerate(states.page_bytes))  # of a page of each group, or of a slot
        if self.pages.carries:
            self._nbytes[SLOTS] = len(states.read_slot(0))
        self._copied = 0  # bytes that are not written yet
        self._full = False  # there was more to copy: the writer tells the engine when it has room
        self._queue: deque[Sequence] = deque()  # sequences whose pages are yet to be read
        self.fetch: Fetch | None = None
        self._reading = False
        self.sequences: tuple[Sequence, ...] = ()  # that wait for the disk; put in place of the last, for any thread
        self._progress = (0, 0.0)  # how much of the fetch was read, and since when
        disk_store.opened = partial(tell, Written())

    # To the disk

    def save(self) -> None:
        """Copy what is not on the disk yet, as much as the writer takes now. Once a turn."""
        while self.disk_store.usable and (place := self.pages.unsaved()) is not None:
            nbytes = self._nbytes[place.group]
            with self._lock:
                self._full = self._copied > 0 and self._copied + nbytes > QUEUED
                if self._full:
                    return
                self._copied += nbytes
            self.pages.saved(place)
            slot = place.group == SLOTS
            data = self._states.read_slot(place.page) if slot else self._states.read_page(place.group, place.page)
            self._write_worker(partial(self._write, place, data))

    def _write(self, place: Place, data: bytes) -> None:
        try:
            self.disk_store.put(_kind(place.group), place.digest, data)
        finally:
            with self._lock:
                self._copied -= len(data)
                full, self._full = self._full, False
            if full:
                self._tell(Written())

    # From the disk

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait for a step; first for its pages, if the disk has some that memory does not have."""
        stalled = self._reading and self.fetch is None
        if stalled or self.pages.match(sequence, self._has) <= self.pages.match(sequence):
            self._scheduler.enter(sequence)
        else:
            self._queue.append(sequence)
            self._next()
            self._publish()

    def drop(self, sequence: Sequence) -> bool:
        """Forget a sequence; False if it does not wait here."""
        if self.fetch is not None and self.fetch.sequence is sequence:
            self._end()
            self._publish()
            return True
        if sequence in self._queue:
            self._queue.remove(sequence)
            self._publish()
            return True
        return False

    def finish(self, fetch: Fetch) -> None:
        """After the last read of a fetch: let its sequence wait for a step, and begin the next fetch."""
        self._reading = False
        if self.fetch is fetch:
            self._end()
            self._scheduler.enter(fetch.sequence)
        self._next()
        self._publish()

    def watch(self) -> None:
        """Wait no longer for a disk that stands still. Once a turn."""
        if self.fetch is None:
            return
        now = monotonic()
        if self._progress[0] != self.fetch.read:
            self._progress = (self.fetch.read, now)
        elif now - self._progress[1] > STALL_S:
            left = self.sequences
            self._queue.clear()
            self._end()
            for sequence in left:
                self._scheduler.enter(sequence)
            self._publish()

    def _next(self) -> None:
        """Begin to read for the next sequence that gains by it; the others go on at once."""
        while self._queue and not self._reading:
            sequence = self._queue.popleft()
            running = self._scheduler.running
            unfinished = [other for other in running if not other.answers]
            fetch = self.pages.reserve(sequence, len(running), unfinished, self._has)
            if fetch is None:
                self._scheduler.enter(sequence)
            else:
                self.fetch, self._reading, self._progress = fetch, True, (0, monotonic())
                self._read_worker(partial(self._read, fetch))

    def _read(self, fetch: Fetch) -> None:
        try:
            for number, page, digest in fetch.missing:
                data = self.disk_store.get(_kind(number), digest, self._nbytes[number])
                with self._lock:
                    if data is None or fetch.ended:
                        return
                    if number == SLOTS:
                        self._states.write_slot(page, data)
                    else:
                        self._states.write_page(number, page, data)
                    fetch.read += 1
        finally:
            self._tell(Fetched(fetch))

    def _publish(self) -> None:
        """Once sequences have come or gone: those that go on are with the scheduler by now."""
        self.sequences = (*(() if self.fetch is None else (self.fetch.sequence,)), *self._queue)

    def _end(self) -> None:
        """Take the pages of the fetch back from the reader."""
        assert self.fetch is not None
        with self._lock:
            self.fetch.ended = True
        self.pages.fetched(self.fetch)
        self.fetch = None

    def _has(self, number: int, digest: bytes) -> bool:
        return self.disk_store.has(_kind(number), digest)

    def close(self) -> None:
        """Write what can still be written within FLUSH_S; nothing touches the pool afterwards."""
        late = monotonic() + FLUSH_S
        while self.disk_store.usable and monotonic() < late:
            self.save()
            if self._copied == 0:
                break
            sleep(0.001)
        if self.fetch is not None:
            self._end()
            self._publish()
        self.disk_store.closed = True
        self._read_worker(None)
        self._write_worker(None)


def _kind(number: int) -> bytes:
    return b"slot" if number == SLOTS else b"page %d" % number
