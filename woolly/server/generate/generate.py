"""The one handler of generation, for whole and streamed answers of every dialect.

The admission queue gives a permit, the model's thread computes, the event loop only carries. A client that goes away at
any moment takes its sequences with it: in the queue, while the prompt is rendered, in the prompt and in the answer.
"""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeAlias

from msgspec import Struct

from woolly.request import Completion, Event, Start, Usage
from woolly.server.dialects.base.fields import refuse_unknown
from woolly.server.generate.answering import Answering
from woolly.server.generate.course import timed
from woolly.server.generate.deadline import before, in_time
from woolly.server.generate.events import Notes, begun_events, chained, collected, events_of
from woolly.server.generate.mcp_tools import offering, rounds
from woolly.server.generate.resuming import seen_of, with_seed
from woolly.server.generate.sampling import described, fitted, sampled
from woolly.server.generate.send import NOTES, Writer, send
from woolly.server.http.caller import Caller
from woolly.server.http.errors import key_needed
from woolly.server.http.reply import Reply
from woolly.server.models.loaded import LoadedModel
from woolly.server.models.registry import ANY
from woolly.server.routes import Dialect, Events, Generation, Head, Job, Streamed

JobEvents: TypeAlias = AsyncGenerator[tuple[int, Event], None]
Follow: TypeAlias = Callable[[JobEvents], JobEvents]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A request for an answer, apart from what it asks: its route, who asks, and where the answer goes."""

    services: Answering
    dialect: Dialect
    route: Generation
    caller: Caller
    out: Writer


async def answer(
    services: Answering, dialect: Dialect, route: Generation, job: Job, caller: Caller, out: Writer
) -> None:
    """Answer a job, whole or streamed. Cancelled, it leaves nothing behind."""
    job = _checked(services, route, job, caller)
    if not job.stream:
        caller = replace(caller, deadline_s=min(caller.deadline_s, caller.begun_s + caller.unstreamed_s))
    exchange = _Exchange(services, dialect, route, caller, out)
    if job.unload:
        await _unload(services, job.model, caller)
        await _reply(exchange, job, _head(route, job.model), [])
        return
    begun_s = time.monotonic()
    async with AsyncExitStack() as stack:
        follow = None
        if job.session:
            turn = services.sessions.turn(caller.name, job.session)
            session = await stack.enter_async_context(in_time(turn, caller.deadline_s))
            follow, in_session = functools.partial(session.follow, job.requests[0]), session.sampling
            job = session.with_history(sampled(job, lambda sampling: sampling.recommended(in_session)))
        any_name = bool(job.requests) and not caller.strict
        lease = services.models.lease(job.model, job.keep_s, wanted="logits", any_name=any_name)
        loaded = await stack.enter_async_context(in_time(lease, caller.deadline_s))
        await _answer_with(exchange, loaded, replace(job, load_s=time.monotonic() - begun_s), follow)


def _checked(services: Answering, route: Generation, job: Job, caller: Caller) -> Job:
    """The job as this caller may ask it."""
    if caller.strict:
        refuse_unknown(job.notes)
    if job.remote is not None:
        services.remotes.check(job.remote, caller)
    if route.render is None:
        job = replace(job, stream=True)
    if job.keep_s is not None and not job.unload and not caller.trusted:  # only a caller with a key may change it
        job = replace(job, keep_s=None, notes=(*job.notes, "keep_alive"))
    return job


async def _answer_with(exchange: _Exchange, loaded: LoadedModel, job: Job, follow: Follow | None) -> None:
    """Answer a job with its model. follow: passes the events on to the session of the job."""
    services, route, caller, out = exchange.services, exchange.route, exchange.caller, exchange.out
    head = _head(route, services.models.answering_name(job.model, loaded))
    if job.model not in ANY and job.model != head["model"]:
        job = replace(job, notes=(*job.notes, "model"))
    if caller.digest and (digest := await before(caller.deadline_s, services.models.digest(loaded))):
        out.extra["x-woolly-model"] = digest
    job = fitted(services.settings, loaded, job, caller)
    if job.requests:
        out.extra["x-woolly-sampling"] = described(job.requests[0].sampling)
    seen = seen_of(job, route, caller)
    if seen is not None:
        job = with_seed(job, caller.seed)
        head["id"] = route.prefix + blake2b(out.id.encode(), digest_size=12).hexdigest()
        out.extra["x-woolly-seed"] = str(job.requests[0].sampling.seed)
    notes = dict.fromkeys(job.notes)  # the first events may add more
    if job.remote is not None:
        await _with_tools(exchange, loaded, job, head, notes)
        return
    job_events = events_of(services, loaded, job, caller, notes)
    async with aclosing(follow(job_events) if follow is not None else job_events) as events:
        if not job.requests:
            await _reply(exchange, job, head, [])
        elif route.render is None or job.stream:
            await _stream(exchange, job, head, notes, events, seen)
        else:
            answers = await collected(len(job.requests), events, services.settings.limits.likelihoods)
            job = _noted(job, notes, out)
            out.extra["x-woolly-cache"] = _reused(one.usage for one in answers)
            out.extra["x-woolly-seed"] = str(answers[0].seed)
            await _reply(exchange, job, head, answers)


async def _stream(exchange: _Exchange, job: Job, head: Head, notes: Notes, events: JobEvents, seen: int | None) -> None:
    route, out = exchange.route, exchange.out
    paced: Events = timed(events) if job.timed else events
    begun = await begun_events(paced, route.streamed_error_codes)  # an early fault has its true status
    job = _noted(job, notes, out)
    out.extra["x-woolly-cache"] = _reused(start for _, start in begun if isinstance(start, Start))
    frames = _remembered(exchange, job, route.frames(job, head, chained(begun, paced)))
    await send(exchange.services, Streamed(frames, route.framing), exchange.dialect.error, out, seen=seen)


async def _with_tools(exchange: _Exchange, loaded: LoadedModel, job: Job, head: Head, notes: Notes) -> None:
    """Answer a job whose model may call tools of MCP servers, which are called here."""
    services, route, caller, out = exchange.services, exchange.route, exchange.caller, exchange.out
    assert job.remote is not None
    box = await before(caller.deadline_s, services.remotes.box(job.remote, caller))
    job = offering(_noted(job, notes, out), box)

    def answers(job: Job) -> JobEvents:
        return events_of(services, loaded, job, caller, notes)

    async with aclosing(rounds(services.remotes, box, job, answers, caller)) as events:
        frames = _remembered(exchange, job, route.frames(job, head, events))
        if job.stream:
            await send(services, Streamed(frames, route.framing), exchange.dialect.error, out)
            return
        async with aclosing(frames) as pieces:
            async for piece in pieces:
                last = piece
        assert route.last is not None
        await out.reply(Reply(route.last(last)))


def _head(route: Generation, model: str) -> Head:
    return Head(id=route.prefix + secrets.token_hex(12), created=int(time.time()), model=model)


async def _reply(exchange: _Exchange, job: Job, head: Head, answers: list[Completion]) -> None:
    """Send a complete answer; a job without requests has none to remember."""
    route = exchange.route
    assert route.render is not None
    record = route.render(job, head, answers)
    if answers and route.memory is not None:
        route.memory.keep(exchange.services.responses, exchange.caller, job, record)
    await exchange.out.reply(Reply(record))


async def _unload(services: Answering, name: str, caller: Caller) -> None:
    """Unload a model, where the caller may; one that is not loaded is no error."""
    if not caller.trusted:
        raise key_needed()
    if (await services.models.record(name)).loaded:
        await services.models.unload(name)


def _reused(counts: Iterable[Start | Usage]) -> str:
    """A header: how many tokens of the prompts came from which cache; in a stream, of prompts begun so far."""
    rows = [(one.prompt_tokens, one.cached_tokens, one.disk_tokens) for one in counts]
    prompts, cached, disk = (sum(row[column] for row in rows) for column in range(3))
    return f"memory={cached - disk}, disk={disk}, none={prompts - cached}"


def _noted(job: Job, notes: Notes, out: Writer) -> Job:
    """The job with all notes, which go into a header as well."""
    if notes:
        out.extra[NOTES] = ", ".join(notes)[:1024]
    return replace(job, notes=tuple(notes))


def _remembered(exchange: _Exchange, job: Job, frames: AsyncGenerator[Struct, None]) -> AsyncGenerator[Struct, None]:
    """The pieces of a stream; where the route remembers answers, each is kept before it is sent."""
    memory = exchange.route.memory
    if memory is None:
        return frames
    keep = functools.partial(memory.keep, exchange.services.responses, exchange.caller, job)

    async def remembered() -> AsyncGenerator[Struct, None]:
        async with aclosing(frames):
            async for piece in frames:
                keep(piece)
                yield piece

    return remembered()
