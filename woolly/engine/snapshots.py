"""Snapshots: what sequences carried at some positions, kept for whoever comes next.

A snapshot is a slot that belongs to no sequence. It is found by the digest of all tokens before its position, as
remembered pages are. What always holds:

- A snapshot is made, and a sequence begins with one, by a copy before the first instruction of the next step; copies
  are done in the order in which they were asked for.
- When no slot is free, the snapshot that was used longest ago is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable


class Snapshots:
    """The book of the slots that hold snapshots. Owned by the engine thread."""

    __slots__ = ("_free", "_slots", "copies")

    def __init__(self, slots: Iterable[int]) -> None:
        self._free = list(slots)
        self._slots: dict[bytes, int] = {}  # by digest, in order of last use
        self.copies: list[tuple[int, int]] = []  # from slot, to slot: to be done before the next step

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._slots

    @property
    def count(self) -> int:
        """Of all slots."""
        return len(self._free) + len(self._slots)

    def keep(self, digest: bytes, slot: int) -> None:
        """Make a snapshot of a sequence's slot, unless there is one."""
        if digest in self._slots:
            self._use(digest)
        elif self.count:
            kept = self._free.pop() if self._free else self._slots.pop(next(iter(self._slots)))
            self._slots[digest] = kept
            self.copies.append((slot, kept))

    def restore(self, digest: bytes, slot: int) -> None:
        """Let a sequence's slot begin with a snapshot."""
        self.copies.append((self._use(digest), slot))

    def leave(self, slot: int) -> None:
        """A sequence goes before it has begun: what its slot was to begin with is not copied."""
        self.copies = [copy for copy in self.copies if copy[1] != slot]

    def done(self) -> None:
        """The copies were made."""
        self.copies.clear()

    def lost(self) -> None:
        """Whether the copies were made is not known: the snapshots that they were to make are forgotten."""
        unsure = {to for _, to in self.copies}
        self.copies.clear()
        for digest in [digest for digest, slot in self._slots.items() if slot in unsure]:
            self._free.append(self._slots.pop(digest))

    def _use(self, digest: bytes) -> int:
        slot = self._slots.pop(digest)
        self._slots[digest] = slot
        return slot
