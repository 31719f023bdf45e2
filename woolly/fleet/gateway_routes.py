"""The routes of a gateway for its fleet: one for the reports of replicas, one that shows its state."""

from __future__ import annotations

import time

from msgspec import field

from woolly.fleet.members import Fleet, FleetReplica, OfferedModel
from woolly.fleet.replica_routes import error
from woolly.fleet.reports import JOIN, JoinReply, ReplicaReport
from woolly.server.dialects.base.shapes import Count, Number, Shape
from woolly.server.models.lifecycle import Models
from woolly.server.models.loaded import LoadedModel
from woolly.server.routes import Call, Dialect, Query

FLEET = "/woolly/v1/fleet"


class ReplicaModel(Shape):
    name: str
    digest: str
    numerics_id: str = field(name="kind")
    serves: bool  # whether its version is the one that serves
    threads: Count
    slots: Count
    running: Count
    waiting: Count
    queued_tokens: Count
    prompt_rate: Number
    answer_rate: Number
    pages: Count
    pages_free: Count
    pages_known: Count
    tokens: Count
    prompt_tokens: Count
    cached_tokens: Count


class ReplicaState(Shape):
    id: str
    url: str
    state: str  # here, absent or leaving
    seen_seconds: Number
    answers: Count  # answers that it computes for this gateway
    models: list[ReplicaModel]


class FleetModelState(Shape):
    """A model of the gateway, with all replicas that serve it together."""

    name: str
    names: list[str]  # all names that mean it
    replicas: Count
    queued_seconds: Number  # until all waiting prompts are computed, at the measured rate
    running: Count
    waiting: Count  # requests that wait for a slot
    slots: Count


class FleetState(Shape):
    replicas: list[ReplicaState]
    models: list[FleetModelState]
    replays: Count
    lost: Count


async def join(fleet: Fleet, call: Call) -> JoinReply:
    """A replica tells of itself; without a report for three seconds it is gone."""
    report: ReplicaReport = call.body
    return await fleet.receive(report, call.caller.address)


async def state(fleet: Fleet, models: Models, _call: Call) -> FleetState:
    """The replicas, what each does, and how many answers went on elsewhere."""
    return FleetState(
        replicas=[_replica_state(fleet, replica) for replica in fleet.replicas.values()],
        models=[_model_state(fleet, loaded) for loaded in models.loaded],
        replays=fleet.replays,
        lost=fleet.failed,
    )


def _model_state(fleet: Fleet, loaded: LoadedModel) -> FleetModelState:
    version = fleet.versions.get(loaded.id, ("", ""))
    here = [offered for replica, offered in fleet.offers(loaded.id, version) if replica.here]
    return FleetModelState(
        name=loaded.id,
        names=sorted({name for one in here for name in one.info.names}),
        replicas=len(here),
        queued_seconds=round(loaded.model.figures().queued_s, 3),
        running=loaded.admission.busy,
        waiting=loaded.admission.waiting,
        slots=sum(one.info.slots for one in here),
    )


def _replica_state(fleet: Fleet, replica: FleetReplica) -> ReplicaState:
    return ReplicaState(
        id=replica.id,
        url=str(replica.address),
        state=replica.state,
        seen_seconds=round(time.monotonic() - replica.seen_s, 2),
        answers=len(replica.answers),
        models=[_model(name, one, fleet.versions.get(name) == one.version) for name, one in replica.models.items()],
    )


def _model(name: str, offered: OfferedModel, serves: bool) -> ReplicaModel:
    info, reported = offered.info, offered.reported
    threads = info.info.get("threads")
    return ReplicaModel(
        name=name,
        digest=info.digest,
        numerics_id=info.numerics_id,
        serves=serves,
        threads=threads if isinstance(threads, int) else 0,
        slots=info.slots,
        running=reported.running,
        waiting=reported.waiting,
        queued_tokens=reported.missing,
        prompt_rate=reported.prompt_rate,
        answer_rate=reported.answer_rate,
        pages=reported.pages,
        pages_free=reported.free,
        pages_known=len(offered.load.pages),
        tokens=reported.tokens,
        prompt_tokens=reported.prompt_tokens,
        cached_tokens=reported.cached_tokens,
    )


DIALECT = Dialect(
    name="fleet",
    routes=(
        Query("POST", JOIN, join, "Fleet", ReplicaReport, access="fleet", quiet=True),
        Query("GET", FLEET, state, "Fleet", access="key"),
    ),
    error=error,
    prefixes=("/woolly/v1/",),
)
