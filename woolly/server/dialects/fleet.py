"""What a gate is told by its replicas, and what it tells of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from woolly.server.dialects.shapes import Count, Number, Shape
from woolly.server.dialects.wire import error
from woolly.server.door import Call, Dialect, Query
from woolly.server.membership import admit
from woolly.server.reports import JOIN, Heard, Report

if TYPE_CHECKING:
    from woolly.server.app import App
    from woolly.server.fleet import Fleet, Member, Offered
    from woolly.server.models import LoadedModel

FLEET = "/woolly/v1/fleet"


class ReplicaModel(Shape):
    name: str
    digest: str
    kind: str
    serves: bool  # it is of the sort that serves
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
    answers: Count  # that it computes for this gate
    models: list[ReplicaModel]


class FleetModelState(Shape):
    """A model of the gate, with all replicas that serve it together."""

    name: str
    names: list[str]  # others that mean it
    replicas: Count
    queued_seconds: Number  # to compute the prompts that wait
    running: Count
    waiting: Count  # for a place
    slots: Count


class FleetState(Shape):
    replicas: list[ReplicaState]
    models: list[FleetModelState]
    replays: Count
    lost: Count


async def join(app: App, call: Call) -> Heard:
    """A replica tells of itself; without a report for three seconds it is gone."""
    admit(app, call)
    report: Report = call.body
    return await _fleet(app).hear(report, call.peer)


async def fleet(app: App, _call: Call) -> FleetState:
    """The replicas, what each does, and how many answers went on elsewhere."""
    known = _fleet(app)
    return FleetState(
        replicas=[_state(known, member) for member in known.members.values()],
        models=[_together(known, loaded) for loaded in app.models.loaded],
        replays=known.replays,
        lost=known.failed,
    )


def _together(known: Fleet, loaded: LoadedModel) -> FleetModelState:
    here = [one for member, one in known.offers(loaded.id, known.sorts.get(loaded.id, ("", ""))) if member.here]
    return FleetModelState(
        name=loaded.id,
        names=sorted({name for one in here for name in one.facts.names}),
        replicas=len(here),
        queued_seconds=round(loaded.model.figures().queued_s, 3),
        running=loaded.line.busy,
        waiting=loaded.line.waiting,
        slots=sum(one.facts.slots for one in here),
    )


def _state(known: Fleet, member: Member) -> ReplicaState:
    return ReplicaState(
        id=member.id,
        url=str(member.address),
        state=member.state,
        seen_seconds=round(time.monotonic() - member.seen_s, 2),
        answers=len(member.answers),
        models=[_model(name, one, known.sorts.get(name) == one.sort) for name, one in member.models.items()],
    )


def _model(name: str, one: Offered, serves: bool) -> ReplicaModel:
    facts, load = one.facts, one.load
    threads = facts.info.get("threads")
    return ReplicaModel(
        name=name,
        digest=facts.digest,
        kind=facts.kind,
        serves=serves,
        threads=threads if isinstance(threads, int) else 0,
        slots=facts.slots,
        running=load.running,
        waiting=load.waiting,
        queued_tokens=load.missing,
        prompt_rate=load.prompt_rate,
        answer_rate=load.answer_rate,
        pages=load.pages,
        pages_free=load.free,
        pages_known=len(one.standing.pages),
        tokens=load.tokens,
        prompt_tokens=load.prompt_tokens,
        cached_tokens=load.cached_tokens,
    )


def _fleet(app: App) -> Fleet:
    assert app.fleet is not None, "a gate has these doors, and a fleet"
    return app.fleet


DIALECT = Dialect(
    name="fleet",
    doors=(
        Query("POST", JOIN, join, "Fleet", Report, access="open"),
        Query("GET", FLEET, fleet, "Fleet", access="key"),
    ),
    error=error,
    prefixes=("/woolly/v1/",),
)
