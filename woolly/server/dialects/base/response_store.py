"""The answers that a server keeps, so that a later request can continue one by its id. In memory, and bounded.

Each key has a space of its own, and finds only the answers to its own requests. Where a key has too much, its answer
that was used longest ago goes; where all together do, one of the key that was used longest ago. Owned by the event
loop.
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
        self._spaces: OrderedDict[bytes, _Space] = OrderedDict()  # by salt; the space that was used last is the last

    def put(self, salt: bytes, id_: str, response: StoredResponse) -> None:
        """Keep an answer, unless it is larger than all that a key may have."""
        if response.nbytes > self.limits.kept_bytes_per_key:
            return
        space = self._spaces.setdefault(salt, _Space())
        self._spaces.move_to_end(salt)
        self.nbytes += response.nbytes
        space.nbytes += response.nbytes
        space.answers[id_] = response
        while len(space.answers) > self.limits.kept_per_key or space.nbytes > self.limits.kept_bytes_per_key:
            self._drop_oldest(salt)
        while self.nbytes > self.limits.kept_bytes:
            self._drop_oldest(next(iter(self._spaces)))

    def find(self, salt: bytes, id_: str) -> StoredResponse | None:
        """An answer of this key. One that is used is kept longer."""
        space = self._spaces.get(salt)
        if space is None or id_ not in space.answers:
            return None
        self._spaces.move_to_end(salt)
        space.answers.move_to_end(id_)
        return space.answers[id_]

    def remove(self, salt: bytes, id_: str) -> bool:
        space = self._spaces.get(salt)
        if space is None or id_ not in space.answers:
            return False
        self._drop(salt, id_)
        return True

    def _drop_oldest(self, salt: bytes) -> None:
        self._drop(salt, next(iter(self._spaces[salt].answers)))

    def _drop(self, salt: bytes, id_: str) -> None:
        space = self._spaces[salt]
        response = space.answers.pop(id_)
        space.nbytes -= response.nbytes
        self.nbytes -= response.nbytes
        if not space.answers:
            del self._spaces[salt]


class _Space:
    """The answers of one key; the last used is the last."""

    def __init__(self) -> None:
        self.answers: OrderedDict[str, StoredResponse] = OrderedDict()
        self.nbytes = 0
