"""Pages: who holds which page of the cache, and which pages are remembered for later sequences.

A page holds the state of a fixed number of positions, for the layers of one group: those with the same window. What
always holds, in each group:

- A page is free, held by as many sequences as its count says, or idle: remembered and held by nobody.
- A page is written only by the sequence that holds it alone, and only before it is remembered.
- A page is remembered under the digest of everything before and in it (names.py): salt, then tokens and what given rows
  were made of, page by page. Two sequences with equal beginnings and an equal salt share whole pages, and no others.
- When no page is free, the idle page that was used longest ago is forgotten; a protected one only where all are.
- Pages behind the window of their group are let go; a sequence begins with remembered pages only where all pages that
  its next position sees are there.

Slots hold what a sequence carries from step to step, one each. At certain positions, where its spans end, a copy of the
slot is kept as a snapshot, under the digest of the page that ends there: at multiples of SNAPSHOT_EVERY, and at the end
of the last whole page of its prompt. A sequence with a slot begins with remembered pages only up to a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from woolly.device.batch import SLOTS
from woolly.engine.cache.group import Group
from woolly.engine.cache.names import begin_in, first_parent, page_name
from woolly.engine.cache.snapshots import Snapshots
from woolly.engine.sequence import Sequence

SNAPSHOT_EVERY = 1024  # positions, a multiple of the size of pages

# Whether a page of a group, or a snapshot (SLOTS), can be had from the disk, by its digest.
OnDisk: TypeAlias = Callable[[int, bytes], bool]


class Spare(NamedTuple):
    """Pages that no sequence holds, of all groups, at one moment."""

    free: int
    idle: int


class Place(NamedTuple):
    """The place in memory of a state that the disk has or is to have: a page of a group, or a slot (group SLOTS)."""

    group: int
    page: int
    digest: bytes


@dataclass(slots=True, eq=False)
class Fetch:
    """Holds all pages that a sequence could begin with while some of them are read from the disk: first the snapshot,
    without which they would be of no use, then the pages in their order."""

    sequence: Sequence
    present: list[tuple[int, int]]  # group and page of each page that is in memory
    missing: list[Place]
    read: int = 0  # of the missing ones
    ended: bool = False  # nothing more is to be read


class Pages:
    """The pages of all groups, of `size` positions each, and the slots. Owned by the engine thread.

    reuse: whether sequences may begin with remembered pages. Not where a position's state depends on later ones.
    snapshots: slots beyond those of sequences. save: whether remembered pages and snapshots are written to the disk;
    not where a sequence carries something of which there are no snapshots.
    """

    __slots__ = (
        "carries",
        "evictions",
        "groups",
        "reuse",
        "save",
        "size",
        "slots",
        "snapshot_every",
        "snapshots",
        "spare",
        "windowed",
    )

    def __init__(
        self,
        counts: Several[int],
        size: int,
        *,
        windows: Several[int] = (0,),
        slots: int = 0,
        snapshots: int = 0,
        reuse: bool = True,
        save: bool = False,
    ) -> None:
        self.groups = [Group(count, window) for count, window in zip(counts, windows, strict=True)]
        self.windowed = [(number, group) for number, group in enumerate(self.groups) if group.window]
        self.size = size
        self.slots = list(range(slots))  # free ones
        self.carries = slots > 0
        self.snapshots = Snapshots(range(slots, slots + snapshots))
        self.snapshot_every = SNAPSHOT_EVERY
        self.reuse = reuse
        self.save = save and reuse and (not slots or snapshots > 0)
        self.evictions = 0  # remembered pages that were forgotten for others
        self._publish()

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def available(self) -> int:
        """Pages that can be had, of all groups."""
        return sum(group.available for group in self.groups)

    def needed(self, positions: int) -> int:
        """How many pages of a group hold this many positions."""
        return -(-positions // self.size)

    def room(self) -> int:
        """The most positions that one sequence may have when it is alone."""
        return min((g.count * self.size for g in self.groups if not g.window), default=2**31 - 1)

    def reach(self, sequence: Sequence) -> int:
        """The most positions for which the sequence could have pages now, up to the next that needs a snapshot."""
        free = min((group.available for group in self.groups), default=2**31)
        return min((sequence.page_count + free) * self.size, sequence.computed + self.until_snapshot(sequence))

    def fills_for(self, one: Sequence, other: Sequence) -> bool:
        """Whether the page that one sequence fills next is a page that the other could begin with; for sequences with
        slots, the page at whose end the next snapshot is made."""
        index = self._next_snapshot(one) // self.size - 1 if self.carries else one.remembered
        begin, end = index * self.size, (index + 1) * self.size
        return (
            self.reuse
            and end <= min(len(one.tokens), other.wanted)
            and one.tokens[begin:end] == other.tokens[begin:end]
            and self._digest(one, index) == self._digest(other, index)
        )

    def admit(self, sequence: Sequence, spare: int, unfinished: Several[Sequence] = ()) -> bool:
        """Give the sequence the remembered pages it begins with, and a slot; False if there is no slot, or if the rest
        of it, and of those that are `unfinished`, would leave fewer than `spare` pages."""
        if self.carries:
            if not self.slots:
                return False
            sequence.slot = self.slots.pop()
        matched = self.match(sequence)
        if not self._has_room(sequence, matched, spare, unfinished):
            self._give_back_slot(sequence)
            return False
        table = self._table(sequence)
        for number, group in enumerate(self.groups):
            begin = group.first_seen(matched * self.size, self.size)
            for index in range(begin, matched):
                page = group.pages[self._digest(sequence, index)]
                group.hold(page)
                table[number, index] = page
            sequence.begins[number] = begin
        if self.carries and matched:
            self.snapshots.restore(self._digest(sequence, matched - 1), sequence.slot)
        sequence.page_count = sequence.remembered = matched
        sequence.table_version += 1
        sequence.computed = matched * self.size
        if sequence.in_memory is not None:
            sequence.disk = self.size * max(0, matched - sequence.in_memory)
        self._publish()
        return True

    def reserve(self, sequence: Sequence, spare: int, unfinished: Several[Sequence], on_disk: OnDisk) -> Fetch | None:
        """Hold the pages that the sequence could begin with if those of the disk were read, and pages to read them
        into; None where that gains nothing, or where there is no room as `admit` wants it."""
        matched, in_memory = self.match(sequence, on_disk), self.match(sequence)
        if matched <= in_memory or not self._has_room(sequence, matched, spare, unfinished):
            return None
        fetch = Fetch(sequence, [], [])
        last = self._digest(sequence, matched - 1)
        if self.carries and last not in self.snapshots:
            slot = self.snapshots.reserve()
            if slot is None:
                return None
            fetch.missing.append(Place(SLOTS, slot, last))
        missing = []
        for number, group in enumerate(self.groups):
            for place in range(group.first_seen(matched * self.size, self.size), matched):
                digest = self._digest(sequence, place)
                if digest in group.pages:
                    group.hold(group.pages[digest])
                    fetch.present.append((number, group.pages[digest]))
                else:
                    missing.append((place, number, digest))
        for _, number, digest in sorted(missing):  # in their order, so that a part of them is a beginning, too
            fetch.missing.append(Place(number, self._take(self.groups[number]), digest))
        sequence.in_memory = in_memory
        self._publish()
        return fetch

    def fetched(self, fetch: Fetch) -> None:
        """Remember what was read, and let go of everything that was held for it."""
        for number, page, digest in fetch.missing[: fetch.read]:
            self._pool(number).remember(page, digest)
        for number, page in reversed([*fetch.present, *((one.group, one.page) for one in fetch.missing)]):
            self._pool(number).let_go(page)
        self._publish()

    def unsaved(self) -> Place | None:
        """The page or snapshot that is to be written to the disk next; of each group the oldest first."""
        for number, group in enumerate(self.groups):
            for digest in group.unsaved:
                return Place(number, group.pages[digest], digest)
        for digest, slot in self.snapshots.complete():
            return Place(SLOTS, slot, digest)
        return None

    def saved(self, place: Place) -> None:
        """Note that the writer has a copy of it."""
        del self._pool(place.group).unsaved[place.digest]

    def grow(self, sequence: Sequence, positions: int) -> bool:
        """See that the sequence has pages for this many positions; takes nothing if there are too few."""
        missing = self.needed(positions) - sequence.page_count
        if missing <= 0:
            return True
        if any(missing > group.available for group in self.groups):
            return False
        table = self._table(sequence)
        for number, group in enumerate(self.groups):
            for index in range(sequence.page_count, sequence.page_count + missing):
                table[number, index] = self._take(group)
        sequence.page_count += missing
        sequence.table_version += 1
        self._publish()
        return True

    def computed(self, sequence: Sequence) -> None:
        """Name the pages that the sequence has filled, let go of those behind a window, and keep what it carries where
        a snapshot belongs. Once a step and sequence."""
        while self.reuse and (sequence.remembered + 1) * self.size <= sequence.computed:
            index = sequence.remembered
            digest, table = self._digest(sequence, index), self._table(sequence)
            for number, group in enumerate(self.groups):
                if group.remember(int(table[number, index]), digest) and self.save:
                    group.unsaved[digest] = None
            sequence.remembered = index + 1
        for number, group in self.windowed:
            begin, table = group.first_seen(sequence.computed, self.size), self._table(sequence)
            behind = range(sequence.begins[number], begin)
            for index in behind:
                group.let_go(int(table[number, index]))
            sequence.begins[number] = begin
            if behind:
                self._publish()
        if self.carries and self.reuse and self._is_snapshot(sequence, sequence.computed):
            digest = self._digest(sequence, sequence.computed // self.size - 1)
            if self.snapshots.keep(digest, sequence.slot) and self.save:
                self.snapshots.unsaved[digest] = None

    def release(self, sequence: Sequence) -> None:
        """Take all pages from the sequence. Its last page becomes the oldest: a beginning is worth more than an end."""
        table, until = self._table(sequence), monotonic() + sequence.options.protect_s
        for number, group in enumerate(self.groups):
            for page in table[number, sequence.begins[number] : sequence.page_count][::-1].tolist():
                group.let_go(page)
                if sequence.options.protect_s and group.names[page] is not None:
                    group.protect(page, until)
            sequence.begins[number] = 0
        self._give_back_slot(sequence)
        sequence.page_count = sequence.remembered = sequence.computed = 0
        self._publish()

    def match(self, sequence: Sequence, on_disk: OnDisk = lambda _number, _digest: False) -> int:
        """How many remembered pages the sequence can begin with, in memory or by `on_disk`: at most up to the first
        wanted position; in each group all pages must exist that the position after them sees; and if the sequence
        carries a state, a snapshot of it at their end."""
        if not self.reuse:
            return 0

        def known(number: int, group: Group, index: int) -> bool:
            digest = self._digest(sequence, index)
            return digest in group.pages or on_disk(number, digest)

        def covered(number: int, group: Group, count: int) -> bool:
            return all(known(number, group, i) for i in range(group.first_seen(count * self.size, self.size), count))

        def resumable(count: int) -> bool:
            digest = self._digest(sequence, count - 1)
            return not self.carries or digest in self.snapshots or on_disk(SLOTS, digest)

        most = sequence.wanted // self.size
        for number, group in enumerate(self.groups):
            if not group.window:
                most = next((index for index in range(most) if not known(number, group, index)), most)
        while most and not (resumable(most) and all(covered(number, group, most) for number, group in self.windowed)):
            most -= 1
        return most

    def until_snapshot(self, sequence: Sequence) -> int:
        """How many positions a sequence may go on up to its next snapshot."""
        return self._next_snapshot(sequence) - sequence.computed if self.carries else len(sequence.tokens)

    def _next_snapshot(self, sequence: Sequence) -> int:
        """The next position at which a snapshot of the sequence belongs."""
        last = (sequence.prompt - 1) // self.size * self.size
        following = (sequence.computed // self.snapshot_every + 1) * self.snapshot_every
        return min(last, following) if last > sequence.computed else following

    def _is_snapshot(self, sequence: Sequence, position: int) -> bool:
        last = (sequence.prompt - 1) // self.size * self.size
        return position > 0 and (position % self.snapshot_every == 0 or position == last)

    def _has_room(self, sequence: Sequence, matched: int, spare: int, unfinished: Several[Sequence]) -> bool:
        """Whether there are pages for the sequence behind the first `matched`, for those of the matched that no
        sequence holds, for the rest of the unfinished sequences, and so many to spare."""
        for group in self.groups:
            seen = range(group.first_seen(matched * self.size, self.size), matched)
            pages = [group.pages.get(self._digest(sequence, index)) for index in seen]
            needed = sum(page is None or group.holders[page] == 0 for page in pages)
            needed += self._missing(group, len(sequence.tokens), matched)
            needed += sum(self._missing(group, len(other.tokens), other.page_count) for other in unfinished)
            if needed + spare > group.available:
                return False
        return True

    def _publish(self) -> None:
        """After every change: other threads read `spare`, which is put in place of the last, and no group."""
        free, idle = sum(len(group.free) for group in self.groups), sum(len(group.idle) for group in self.groups)
        self.spare = Spare(free, idle)

    def _pool(self, number: int) -> Group | Snapshots:
        return self.snapshots if number == SLOTS else self.groups[number]

    def _take(self, group: Group) -> int:
        page, forgets = group.take()
        self.evictions += forgets
        return page

    def _missing(self, group: Group, positions: int, matched: int) -> int:
        """Pages that a sequence with `matched` pages needs at the same time to come to so many positions."""
        missing = self.needed(positions) - matched
        return min(missing, self.needed(group.window) + 1) if group.window else missing

    def _table(self, sequence: Sequence) -> NDArray[np.int32]:
        if sequence.table is None:
            sequence.table = np.zeros((len(self.groups), self.needed(sequence.limit)), np.int32)
            sequence.begins = [0] * len(self.groups)
        return sequence.table

    def _give_back_slot(self, sequence: Sequence) -> None:
        if sequence.slot >= 0:
            self.snapshots.leave(sequence.slot)
            self.slots.append(sequence.slot)
            sequence.slot = -1

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """The name of page `index` of a sequence: of its tokens and of all before. Kept: tokens never change."""
        chain = sequence.chain
        while len(chain) <= index:
            first, end = len(chain) * self.size, (len(chain) + 1) * self.size
            parent = chain[-1] if chain else first_parent(sequence.options.salt)
            chain.append(page_name(parent, sequence.tokens[first:end], begin_in(sequence.features, first, end)))
        return chain[index]
