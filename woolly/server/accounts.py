"""Accounts: what each caller has out of the server, and what all have together.

The rule of the house: whatever a caller causes (a socket, a handshake, a body, a thread's work, an upload) is taken
from its account before it happens, and given back when it is over, however it ends. So it is bounded for each caller
and in all, and a caller that has gone has nothing out.

A `Grant` is what is out: it knows whose it is, of what, and how much. Giving it back twice changes nothing. A holder is
the name of a caller; before anybody knows who that is, the address of its connection. Owned by the event loop.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from woolly.errors import BusyError


class Resource(Enum):
    """What is taken, in the words of an error."""

    CONNECTIONS = "connections"
    BODY_BYTES = "bytes of bodies"
    UNREAD_BYTES = "bytes of answers that nobody reads"
    THREADS = "threads"
    TOOLS = "calls of tools"
    DOWNLOADS = "downloads"
    BATCHES = "batches that are being made"
    UPLOADS = "uploads"
    UPLOAD_BYTES = "bytes of uploads"


@dataclass(frozen=True, slots=True)
class Bound:
    """The most of a resource that one holder has out, and that all have together."""

    each: float = math.inf
    all: float = math.inf


class Accounts:
    def __init__(self, bounds: Mapping[Resource, Bound]) -> None:
        self._bounds = bounds
        self._all: Counter[Resource] = Counter()
        self._each: Counter[tuple[str, Resource]] = Counter()  # without those that have nothing out

    def take(self, holder: str, resource: Resource, amount: int = 1) -> Grant:
        """Take so much, all of it or nothing; BusyError where a bound is reached."""
        grant = Grant(self, holder, resource)
        grant.add(amount)
        return grant

    def has_room(self, holder: str, resource: Resource, amount: int = 1) -> bool:
        bound = self._bounds.get(resource, Bound())
        each, total = self._each[holder, resource] + amount, self._all[resource] + amount
        return each <= bound.each and total <= bound.all

    def out(self, resource: Resource, holder: str | None = None) -> int:
        """How much of a resource one holder, or all have out."""
        return self._all[resource] if holder is None else self._each[holder, resource]

    @property
    def empty(self) -> bool:
        """Nobody has anything out."""
        return not self._each

    def _move(self, holder: str, resource: Resource, amount: int) -> None:
        self._all[resource] += amount
        self._each[holder, resource] += amount
        if not self._each[holder, resource]:
            del self._each[holder, resource]


class Grant:
    """What one holder has out of one resource. A context manager that gives it back."""

    __slots__ = ("_accounts", "amount", "holder", "resource")

    def __init__(self, accounts: Accounts, holder: str, resource: Resource) -> None:
        self._accounts = accounts
        self.holder = holder
        self.resource = resource
        self.amount = 0

    def add(self, amount: int) -> None:
        """Take more; BusyError where a bound is reached, and then nothing is taken."""
        self.resize(self.amount + amount)

    def resize(self, amount: int) -> None:
        """Have so much out, more or less than before; BusyError where a bound is reached, and then nothing changes."""
        more = amount - self.amount
        if more > 0 and not self._accounts.has_room(self.holder, self.resource, more):
            raise BusyError(
                f"there are too many {self.resource.value} at once",
                suggestion="try again in a moment",
                code="overloaded",
                retry_after=1,
            )
        if more:
            self._accounts._move(self.holder, self.resource, more)
            self.amount = amount

    def give_back(self) -> None:
        self.resize(0)

    def __enter__(self) -> Grant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


def holder_of(host: str, port: int) -> str:
    """Whose a connection is, before anybody has said who asks: its address.

    A network gives each of its machines a whole /64 of IPv6 to take addresses from, so that is one holder. Programs of
    this machine, and all clients of a proxy on it, share one address: there each connection is a holder of its own.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # of no network: a socket in the file system
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return f"{host}:{port}" if address.is_loopback else str(ipaddress.ip_network((address, 64), strict=False))
        address = address.ipv4_mapped
    return f"{host}:{port}" if address.is_loopback else str(address)
