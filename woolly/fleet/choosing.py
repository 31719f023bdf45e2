"""Which replica computes something with a model: of those that serve it, the one that would answer soonest."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass

from woolly.fleet.members import Fleet, FleetReplica, ModelVersion, OfferedModel, no_replica
from woolly.fleet.reports import ModelInfo
from woolly.fleet.routing import Prompt, candidates, cost_s

WAIT_S = 10.0  # how long a request waits for a replica where there is none


@dataclass(frozen=True, slots=True)
class ModelReplicas:
    """The replicas that have one version of a model. vocab: how many token ids the model has, by which the events of a
    replica are checked."""

    fleet: Fleet
    name: str
    info: ModelInfo
    vocab: int

    @property
    def version(self) -> ModelVersion:
        return self.info.digest, self.info.numerics_id

    def offers(self) -> list[OfferedModel]:
        """The model as each of these replicas offers it."""
        return [offered for _, offered in self.fleet.offers(self.name, self.version)]

    def available(self, tokens: int, busy: Collection[str] = ()) -> list[tuple[FleetReplica, OfferedModel]]:
        """The replicas that take requests of so many tokens, without the busy ones."""
        return [
            (replica, offered)
            for replica, offered in self.fleet.offers(self.name, self.version)
            if replica.here and replica.id not in busy and offered.info.context >= tokens
        ]

    async def choose(self, prompt: Prompt, tokens: int, busy: Collection[str]) -> tuple[FleetReplica, OfferedModel]:
        """The replica that would answer soonest; where there is none, wait for one. On the event loop."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not (available := self.available(tokens, busy)):
                    await self.fleet.changed.wait()
        except TimeoutError:
            raise no_replica(self.name) from None
        by_id = {replica.id: (replica, offered) for replica, offered in available}
        ids = candidates(by_id, prompt, random.choice)
        return by_id[min(ids, key=lambda id_: cost_s(by_id[id_][1].load, prompt))]
