"""The answers that a server keeps, so that a later request can continue one by its id. In memory, and bounded.

Each caller has a space of its own, and finds only the answers to its own requests. Where a caller has too much, its
answer that was used longest ago goes; where all together do, one of the caller that asked longest ago. Owned by the
event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from woolly.config.serving import Serving


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """An answer: its record, and the items of the whole conversation, of which the first `inputs` were asked."""

    record: Any
    items: tuple[dict[str, Any], ...]
    inputs: int
    nbytes: int


class ResponseStore:
    def __init__(self, limits: Serving) -> None:
        self.limits = limits
        self.nbytes = 0  # of all answers
        self._spaces: OrderedDict[str, _Space] = OrderedDict()  # by owner; the space that was used last is the last

    def put(self, owner: str, id_: str, response: StoredResponse) -> None:
        """Keep an answer, unless it is larger than all that a caller may have."""
        if response.nbytes > self.limits.kept_bytes_per_key:
            return
        space = self._spaces.setdefault(owner, _Space())
        self._spaces.move_to_end(owner)
        self.nbytes += response.nbytes
        space.nbytes += response.nbytes
        space.answers[id_] = response
        while len(space.answers) > self.limits.kept_per_key or space.nbytes > self.limits.kept_bytes_per_key:
            self._drop_oldest(owner)
        while self.nbytes > self.limits.kept_bytes:
            self._drop_oldest(next(iter(self._spaces)))

    def find(self, owner: str, id_: str) -> StoredResponse | None:
        """An answer of this caller. One that is used is kept longer."""
        space = self._spaces.get(owner)
        if space is None or id_ not in space.answers:
            return None
        self._spaces.move_to_end(owner)
        space.answers.move_to_end(id_)
        return space.answers[id_]

    def remove(self, owner: str, id_: str) -> bool:
        space = self._spaces.get(owner)
        if space is None or id_ not in space.answers:
            return False
        self._drop(owner, id_)
        return True

    def _drop_oldest(self, owner: str) -> None:
        self._drop(owner, next(iter(self._spaces[owner].answers)))

    def _drop(self, owner: str, id_: str) -> None:
        space = self._spaces[owner]
        response = space.answers.pop(id_)
        space.nbytes -= response.nbytes
        self.nbytes -= response.nbytes
        if not space.answers:
            del self._spaces[owner]


class _Space:
    """The answers of one caller; the last used is the last."""

    def __init__(self) -> None:
        self.answers: OrderedDict[str, StoredResponse] = OrderedDict()
        self.nbytes = 0
