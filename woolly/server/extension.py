"""What a room outside the server adds to it: the two sides of a fleet, gateway and replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from woolly.server.http.log import Log
from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Dialect

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Extension(Protocol):
    """Begins when the server listens, and ends before it. Owned by the event loop.

    dialect: its routes. services: what they may ask for beside the services of every server. loads_models: the server
    loads those of its settings when it begins. is_moving: tells of an answer, by the id of its request, whether it
    waits for another process to go on with it; None: no answer ever does.
    """

    dialect: Dialect
    services: Mapping[type, object]
    loads_models: bool

    @property
    def is_moving(self) -> Callable[[str], bool] | None: ...

    def begin(self, models: Models, counts: Counts, log: Log, address: tuple[str, int]) -> None:
        """Begin, when the server listens, at this address first."""

    def leave(self) -> None:
        """Tell other processes that this one takes no new requests."""

    async def close(self) -> None: ...

    def metrics(self) -> Iterable[Metric]: ...
