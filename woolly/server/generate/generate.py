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
from dataclasses import replace
from hashlib import blake2b
from typing import TypeVar

from woolly.request import Completion, Event, Start, Usage
from woolly.server.dialects.base.fields import refuse_unknown
from woolly.server.generate.answering import Answering
from woolly.server.generate.deadline import before, in_time
from woolly.server.generate.events import Notes, begun_events, chained, collected, events_of
from woolly.server.generate.mcp_tools import offering, rounds
from woolly.server.generate.resuming import seen_of, with_seed
from woolly.server.generate.sampling import described, fitted, sampled
from woolly.server.generate.send import NOTES, Writer, send
from woolly.server.http.caller import Caller
from woolly.server.http.errors import key_needed
from woolly.server.http.reply import Reply
from woolly.server.models.lifecycle import LoadedModel
from woolly.server.models.registry import ANY
from woolly.server.routes import Dialect, Generation, Head, Job, Streamed

T = TypeVar("T")


async def answer(
    services: Answering, dialect: Dialect, route: Generation, job: Job, caller: Caller, out: Writer
) -> None:
    """Answer a job, whole or streamed. Cancelled, it leaves nothing behind."""
    if caller.strict:
        refuse_unknown(job.notes)
    if job.remote is not None:
        services.remotes.check(job.remote, caller)
    if route.render is None:
        job = replace(job, stream=True)
    if job.keep_s is not None and not job.unload and not caller.trusted:  # only a caller with a key may change it
        job = replace(job, keep_s=None, notes=(*job.notes, "keep_alive"))
    if not job.stream:
        caller = replace(caller, deadline_s=min(caller.deadline_s, caller.begun_s + caller.unstreamed_s))
    if job.unload:
        await _unload(services, job.model, caller)
        await _reply(route, job, _head(route, job.model), [], out)
        return
    begun_s = time.monotonic()
    async with AsyncExitStack() as stack:
        session = None
        if job.session:
            turn = services.sessions.turn(caller.name, job.session)
            session = await stack.enter_async_context(in_time(turn, caller.deadline_s))
            turn_job, in_session = job, session.sampling
            job = session.with_history(sampled(job, lambda sampling: sampling.recommended(in_session)))
        any_name = bool(job.requests) and not caller.strict
        lease = services.models.lease(job.model, job.keep_s, wanted="logits", any_name=any_name)
        loaded = await stack.enter_async_context(in_time(lease, caller.deadline_s))
        head = _head(route, services.models.answering_name(job.model, loaded))
        if job.model not in ANY and job.model != head["model"]:
            job = replace(job, notes=(*job.notes, "model"))
        if caller.digest and (digest := await before(caller.deadline_s, services.models.digest(loaded))):
            out.extra["x-woolly-model"] = digest
        job = fitted(services.settings, loaded, replace(job, load_s=time.monotonic() - begun_s), caller)
        if job.requests:
            out.extra["x-woolly-sampling"] = described(job.requests[0].sampling)
        seen = seen_of(job, route, caller)
        if seen is not None:
            job = with_seed(job, caller.seed)
            head["id"] = route.prefix + blake2b(out.id.encode(), digest_size=12).hexdigest()
            out.extra["x-woolly-seed"] = str(job.requests[0].sampling.seed)
        notes = dict.fromkeys(job.notes)  # the first events may add more
        if job.remote is not None:
            await _with_tools(services, dialect, route, job, head, loaded, caller, notes, out)
            return
        job_events = events_of(services, loaded, job, caller, notes)
        if session is not None:
            job_events = session.follow(turn_job.requests[0], job_events)
        async with aclosing(job_events) as events:
            if not job.requests:
                await _reply(route, job, head, [], out)
            elif route.render is None or job.stream:
                begun = await begun_events(
                    events, route.streamed_error_codes
                )  # before the status, so that an early fault has its true one
                job = _noted(job, notes, out)
                out.extra["x-woolly-cache"] = _reused(start for _, start in begun if isinstance(start, Start))
                frames = route.frames(job, head, chained(begun, events))
                if route.memory is not None:
                    frames = _remembered(frames, functools.partial(route.memory.keep, services.responses, caller, job))
                await send(services, Streamed(frames, route.framing), dialect.error, out, seen=seen)
            else:
                answers = await collected(len(job.requests), events, services.settings.limits.likelihoods)
                job = _noted(job, notes, out)
                out.extra["x-woolly-cache"] = _reused(one.usage for one in answers)
                out.extra["x-woolly-seed"] = str(answers[0].seed)
                record = route.render(job, head, answers)
                if route.memory is not None:
                    route.memory.keep(services.responses, caller, job, record)
                await out.reply(Reply(record))


async def _with_tools(
    services: Answering,
    dialect: Dialect,
    route: Generation,
    job: Job,
    head: Head,
    loaded: LoadedModel,
    caller: Caller,
    notes: Notes,
    out: Writer,
) -> None:
    """Answer a job whose model may call tools of MCP servers, which are called here."""
    assert job.remote is not None
    box = await before(caller.deadline_s, services.remotes.box(job.remote, caller))
    job = offering(_noted(job, notes, out), box)

    def answers(job: Job) -> AsyncGenerator[tuple[int, Event], None]:
        return events_of(services, loaded, job, caller, notes)

    async with aclosing(rounds(services.remotes, box, job, answers, caller)) as events:
        frames = route.frames(job, head, events)
        if route.memory is not None:
            frames = _remembered(frames, functools.partial(route.memory.keep, services.responses, caller, job))
        if job.stream:
            await send(services, Streamed(frames, route.framing), dialect.error, out)
            return
        async with aclosing(frames) as pieces:
            async for piece in pieces:
                last = piece
        assert route.last is not None
        await out.reply(Reply(route.last(last)))


def _head(route: Generation, model: str) -> Head:
    return Head(id=route.prefix + secrets.token_hex(12), created=int(time.time()), model=model)


async def _reply(route: Generation, job: Job, head: Head, answers: list[Completion], out: Writer) -> None:
    assert route.render is not None
    await out.reply(Reply(route.render(job, head, answers)))


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


async def _remembered(frames: AsyncGenerator[T, None], keep: Callable[[T], None]) -> AsyncGenerator[T, None]:
    """The pieces of a stream, each of which is kept before it is sent."""
    async with aclosing(frames):
        async for piece in frames:
            keep(piece)
            yield piece
