"""Snapshots: what sequences carried at some positions, kept for later sequences.

A snapshot is a slot that belongs to no sequence. It is found by the digest of all tokens before its position, as
remembered pages are. What always holds:

- A snapshot is made, and a sequence begins with one, by a copy before the first instruction of the next step; copies
  are done in the order in which they were asked for.
- When no slot is free, the snapshot that was used longest ago is forgotten.
- A slot that is read into from the disk is reserved: no copy touches it, and it is no snapshot before it is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Snapshots:
    """The slots that hold snapshots. Owned by the engine thread."""

    __slots__ = ("_free", "_slots", "copies", "unsaved")

    def __init__(self, slots: Iterable[int]) -> None:
        self._free = list(slots)
        self._slots: dict[bytes, int] = {}  # by digest, in order of last use
        self.copies: list[tuple[int, int]] = []  # from slot, to slot: to be done before the next step
        self.unsaved: dict[bytes, None] = {}  # digests of snapshots that are to be written to the disk, oldest first

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._slots

    def names(self) -> list[bytes]:
        """The digests of all. From any thread."""
        return list(self._slots)

    @property
    def count(self) -> int:
        """The number of slots that are not reserved."""
        return len(self._free) + len(self._slots)

    def keep(self, digest: bytes, slot: int) -> bool:
        """Make a snapshot of a sequence's slot; False if there is one, or no place for it."""
        if digest in self._slots:
            self._use(digest)
            return False
        if not self.count:
            return False
        copied = self._free.pop() if self._free else self._forget(next(iter(self._slots)))
        self._slots[digest] = copied
        self.copies.append((slot, copied))
        return True

    def restore(self, digest: bytes, slot: int) -> None:
        """Let a sequence's slot begin with a snapshot."""
        self.copies.append((self._use(digest), slot))

    def reserve(self) -> int | None:
        """A slot to be read into while steps are computed; None where every slot is part of a copy to be done."""
        if self._free:
            return self._free.pop()
        busy = {slot for copy in self.copies for slot in copy}
        digest = next((digest for digest, slot in self._slots.items() if slot not in busy), None)
        return None if digest is None else self._forget(digest)

    def remember(self, slot: int, digest: bytes) -> bool:
        """Make a reserved slot that has been read into a snapshot; False if there is one of that name."""
        if digest in self._slots:
            return False
        self._slots[digest] = slot
        return True

    def let_go(self, slot: int) -> None:
        """A slot is reserved no longer: it is free, if it is no snapshot."""
        if slot not in self._slots.values():
            self._free.append(slot)

    def complete(self) -> Iterator[tuple[bytes, int]]:
        """Digest and slot of each snapshot that is to be written to the disk and whose copy has been made."""
        coming = {to for _, to in self.copies}
        return ((digest, self._slots[digest]) for digest in self.unsaved if self._slots[digest] not in coming)

    def leave(self, slot: int) -> None:
        """A sequence gives its slot back: a copy into it that is still to be done is dropped."""
        self.copies = [copy for copy in self.copies if copy[1] != slot]

    def done(self) -> None:
        """The copies were made."""
        self.copies.clear()

    def lost(self) -> None:
        """The copies may or may not have been made: the snapshots that they were to make are forgotten."""
        unsure = {to for _, to in self.copies}
        self.copies.clear()
        for digest in [digest for digest, slot in self._slots.items() if slot in unsure]:
            self._free.append(self._forget(digest))

    def _use(self, digest: bytes) -> int:
        slot = self._slots.pop(digest)
        self._slots[digest] = slot
        return slot

    def _forget(self, digest: bytes) -> int:
        self.unsaved.pop(digest, None)
        return self._slots.pop(digest)
