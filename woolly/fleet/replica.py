"""A replica: a server that computes for the gateways that it has joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from woolly.config import Config, Settings
from woolly.fleet.http import Address, read_address
from woolly.fleet.membership import Membership
from woolly.fleet.replica_routes import DIALECT
from woolly.server.app import App
from woolly.server.http.guard import WILDCARDS
from woolly.server.http.log import Log
from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Replica:
    """What a replica adds to a server."""

    dialect = DIALECT
    loads_models = True
    is_moving = None
    services: Mapping[type, object] = {}

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._membership: Membership | None = None

    def begin(self, models: Models, counts: Counts, log: Log, address: tuple[str, int]) -> None:
        host, port = address
        known = "" if host in WILDCARDS else host  # else gateways know it by the address that reports come from
        url = self._settings.advertise or str(Address(known, port, self._settings.certificate is not None))
        gateways = [read_address(gateway, "--join") for gateway in self._settings.join]
        self._membership = Membership(self._settings, models, counts, log, gateways, url)
        self._membership.start()

    def leave(self) -> None:
        if self._membership is not None:
            self._membership.leave()

    async def close(self) -> None:
        if self._membership is not None:
            await self._membership.close()

    def metrics(self) -> Iterator[Metric]:
        yield from ()


def build_replica(settings: Settings, config: Config) -> App:
    """The application of a replica; nothing is loaded and nothing listens yet."""
    return App(settings, config, extension=Replica(settings))
