"""Who asks, and who may enter.

A caller has the name of its key, or, without one, its address (addresses.py). No address begins as the name of a key
does, and nothing else that a client sends is part of either: a token stands for its key, and a user that it names is
nobody here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Access: TypeAlias = Literal["open", "anonymous", "key", "fleet"]
"""Who may enter: anybody; whoever may be anonymous, or has a key; once there are keys, only who has one; gateways and
replicas of the same fleet."""


KEY = "key-"  # the names of keys begin so


def has_key(name: str) -> bool:
    """Whether a caller of this name has a key."""
    return name.startswith(KEY)


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind a request, and what it wants of any answer, whichever protocol carried the request. Times are
    those of the event loop's clock."""

    name: str  # of a key, or an address; the queue is fair between names, and what is kept belongs to one
    salt: bytes  # separates cached pages of one key from those of others
    begun_s: float
    deadline_s: float
    unstreamed_s: float = math.inf  # how long it waits for an answer that is not streamed
    strict: bool = False  # a field that is not known is refused
    digest: bool = False  # the answer is to tell the digest of the model's file
    trusted: bool = True  # it has a key, or the server asks for none
    seen: int | None = None  # events of this answer that it has already; None: it does not resume broken streams
    seed: int | None = None  # for an answer whose body names none
    row: bool = False  # a row of a batch: other requests come first
    address: str = ""  # that its requests come from
