"""A gateway: the same server, with the models of the replicas that report to it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from woolly.config import Config, Settings
from woolly.fleet.gateway_routes import DIALECT
from woolly.fleet.members import Fleet
from woolly.server.app import App
from woolly.server.http.log import Log
from woolly.server.models.counts import Counts
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import ServedModel

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class Gateway:
    """What a gateway adds to a server."""

    dialect = DIALECT
    loads_models = False  # a model is loaded when replicas report it

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.is_moving = fleet.is_moving
        self.services: Mapping[type, object] = {Fleet: fleet}

    def begin(self, models: Models, _counts: Counts, log: Log, _address: tuple[str, int]) -> None:
        self.fleet.begin(models, log)

    def leave(self) -> None:
        """Nothing to tell: replicas send no work to a gateway."""

    async def close(self) -> None:
        await self.fleet.close()

    def metrics(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily as Counter
        from prometheus_client.core import GaugeMetricFamily as Gauge

        replicas = Gauge("woolly:fleet_replicas", "Replicas that report, by whether they take work.", labels=("state",))
        for state, count in self.fleet.states().items():
            replicas.add_metric([state], count)
        replays = Counter("woolly:fleet_replays", "Times that an answer went on at another replica.")
        replays.add_metric([], self.fleet.replays)
        lost = Counter("woolly:fleet_lost", "Answers that were lost too often.")
        lost.add_metric([], self.fleet.failed)
        yield from (replicas, replays, lost)


def build_gateway(settings: Settings, config: Config, fleet: Fleet | None = None) -> App:
    """The application of a gateway; nothing listens yet."""
    fleet = fleet or Fleet(settings.fleet_key, insecure=settings.insecure_fleet)
    load = functools.partial(_load, fleet)
    return App(settings, config, load=load, installed=fleet.installed, extension=Gateway(fleet))


def _load(fleet: Fleet, path: Path, config: Config) -> ServedModel:
    """Load a model of the fleet. Runs in a thread."""
    from woolly.fleet.remote_model import load  # late, because it imports NumPy

    return load(fleet, path, config)
