"""Group: the pages of the layers with one window. What always holds is said in pages.py."""

from __future__ import annotations

from time import monotonic


class Group:
    """The pages of one group: which are free, which are remembered, and how many sequences hold each."""

    __slots__ = ("count", "free", "holders", "idle", "names", "pages", "protected", "unsaved", "window")

    def __init__(self, count: int, window: int) -> None:
        self.count = count
        self.window = window  # positions that a row sees, its own included; 0: all
        self.free = list(range(count - 1, -1, -1))  # a stack: the page used last is the warmest
        self.holders = [0] * count  # how many sequences hold the page
        self.idle: dict[int, None] = {}  # in order of last use
        self.names: list[bytes | None] = [None] * count  # the digest of a remembered page
        self.pages: dict[bytes, int] = {}  # the remembered page of a digest
        self.protected: dict[int, float] = {}  # remembered pages that are forgotten last, and until when
        self.unsaved: dict[bytes, None] = {}  # digests of pages that are to be written to the disk, oldest first

    @property
    def available(self) -> int:
        """Pages that can be had: free ones, and idle ones that can be forgotten."""
        return len(self.free) + len(self.idle)

    def hold(self, page: int) -> None:
        """One holder more of a remembered page."""
        self.holders[page] += 1
        self.idle.pop(page, None)

    def let_go(self, page: int) -> None:
        """One holder less; a page without holders is idle if it is remembered, else free."""
        self.holders[page] -= 1
        if self.holders[page] == 0:
            if self.names[page] is None:
                self.free.append(page)
            else:
                self.idle[page] = None

    def remember(self, page: int, digest: bytes) -> bool:
        """Name a page; False if there is one of that name: another sequence may have computed it at the same time."""
        if digest in self.pages:
            return False
        self.pages[digest] = page
        self.names[page] = digest
        return True

    def protect(self, page: int, until_s: float) -> None:
        """Until then, forget other pages before this one. At most half of all pages are protected, those named last."""
        self.protected.pop(page, None)
        self.protected[page] = until_s
        if len(self.protected) > self.count // 2:
            del self.protected[next(iter(self.protected))]

    def take(self) -> tuple[int, bool]:
        """A page for a new holder, and whether one had to be forgotten for it."""
        forgets = not self.free
        page = self.forget() if forgets else self.free.pop()
        self.holders[page] = 1
        return page, forgets

    def forget(self) -> int:
        """The idle page that was used longest ago, free again; one that is protected where there is no other."""
        page = next(iter(self.idle))
        if self.protected:
            now = monotonic()
            page = next((one for one in self.idle if self.protected.get(one, 0.0) <= now), page)
            self.protected.pop(page, None)
        del self.idle[page]
        digest = self.names[page]
        assert digest is not None
        del self.pages[digest]
        self.unsaved.pop(digest, None)
        self.names[page] = None
        return page

    def first_seen(self, position: int, size: int) -> int:
        """The index of the first page that a row at this position sees."""
        return max(position + 1 - self.window, 0) // size if self.window else 0
