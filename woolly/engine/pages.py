"""Pages: who holds which page of the cache, and which pages are remembered for whoever comes next.

A page holds the state of a fixed number of positions. What always holds:

- A page is free, held by as many sequences as its count says, or idle: remembered and held by nobody.
- A page is written only by the sequence that holds it alone, and only before it is remembered.
- A page is remembered under the digest of everything before and in it: salt, then tokens, page by page. Two sequences
  with equal beginnings and an equal salt share whole pages, and no others.
- When no page is free, the idle page that was used longest ago is forgotten.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b

from woolly.engine.sequence import Sequence


class Pages:
    """The book of `count` pages of `size` positions. Owned by the engine thread."""

    __slots__ = ("count", "evictions", "free", "holders", "idle", "names", "pages", "size")

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        self.evictions = 0  # remembered pages that were forgotten for others
        self.free = list(range(count - 1, -1, -1))  # a stack: the page used last is the warmest
        self.holders = [0] * count  # how many sequences hold the page
        self.idle: dict[int, None] = {}  # in order of last use
        self.names: list[bytes | None] = [None] * count  # the digest of a remembered page
        self.pages: dict[bytes, int] = {}  # the remembered page of a digest

    @property
    def available(self) -> int:
        """Pages that can be had: free ones, and idle ones that can be forgotten."""
        return len(self.free) + len(self.idle)

    def needed(self, positions: int) -> int:
        """How many pages hold this many positions."""
        return -(-positions // self.size)

    def match(self, sequence: Sequence) -> list[int]:
        """The remembered pages that the sequence begins with, up to the first position whose output is wanted."""
        found: list[int] = []
        for index in range(sequence.wanted // self.size):
            page = self.pages.get(self._digest(sequence, index))
            if page is None:
                break
            found.append(page)
        return found

    def admit(self, sequence: Sequence, spare: int) -> bool:
        """Give the sequence the remembered pages it begins with; refused if the rest would leave less than `spare`."""
        found = self.match(sequence)
        left = self.available - sum(self.holders[page] == 0 for page in found)
        if self.needed(len(sequence.tokens)) - len(found) + spare > left:
            return False
        for index, page in enumerate(found):
            self.holders[page] += 1
            self.idle.pop(page, None)
            sequence.table[index] = page
        sequence.held = sequence.remembered = len(found)
        sequence.computed = len(found) * self.size
        return True

    def grow(self, sequence: Sequence, positions: int) -> bool:
        """See that the sequence has pages for this many positions; takes nothing if there are too few."""
        missing = self.needed(positions) - sequence.held
        if missing <= 0:
            return True
        if missing > self.available:
            return False
        for _ in range(missing):
            page = self.free.pop() if self.free else self._forget()
            self.holders[page] = 1
            sequence.table[sequence.held] = page
            sequence.held += 1
        return True

    def remember(self, sequence: Sequence) -> None:
        """Name the pages that the sequence has filled since the last call. Once a step and sequence."""
        while (sequence.remembered + 1) * self.size <= sequence.computed:
            index = sequence.remembered
            digest, page = self._digest(sequence, index), int(sequence.table[index])
            if digest not in self.pages:  # a neighbour may have computed the same at the same time
                self.pages[digest] = page
                self.names[page] = digest
            sequence.remembered = index + 1

    def release(self, sequence: Sequence) -> None:
        """Take all pages from the sequence. Its last page becomes the oldest: a beginning is worth more than an end."""
        for page in sequence.table[: sequence.held][::-1].tolist():
            self.holders[page] -= 1
            if self.holders[page] == 0:
                if self.names[page] is None:
                    self.free.append(page)
                else:
                    self.idle[page] = None
        sequence.held = sequence.remembered = sequence.computed = 0

    def _forget(self) -> int:
        self.evictions += 1
        page = next(iter(self.idle))
        del self.idle[page]
        digest = self.names[page]
        assert digest is not None
        del self.pages[digest]
        self.names[page] = None
        return page

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """The name of page `index` of a sequence: of its tokens, and of all before. Kept, since tokens never change."""
        chain = sequence.chain
        while len(chain) <= index:
            first = len(chain) * self.size
            parent = chain[-1] if chain else blake2b(sequence.salt, digest_size=16).digest()
            tokens = array("i", sequence.tokens[first : first + self.size])
            chain.append(blake2b(parent + tokens.tobytes(), digest_size=16).digest())
        return chain[index]
