"""The one handler of generation, for whole and streamed answers of every dialect.

The admission queue gives a permit, the model's thread computes, the event loop only carries. A client that goes away at
any moment takes its sequences with it: in the queue, while the prompt is rendered, in the prompt and in the answer.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import fields, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

from woolly.errors import BusyError, NativeError, RequestError, WoollyError
from woolly.request import (
    Arguments,
    CallStart,
    Completion,
    End,
    Event,
    Failed,
    Piece,
    Prompt,
    Request,
    Sampling,
    Start,
    Text,
    Thought,
    Usage,
    complete,
)
from woolly.server.dialects.base.bodies import NO_LIMIT
from woolly.server.dialects.base.fields import refuse_unknown
from woolly.server.generate.answering import Answering
from woolly.server.generate.course import PIECES, Course, timed
from woolly.server.generate.mcp_tools import offering, rounds
from woolly.server.generate.sampling import bounded, described, seeded, with_defaults
from woolly.server.http.caller import Caller
from woolly.server.http.errors import key_needed
from woolly.server.http.framing import EVENTS
from woolly.server.http.reply import Reply
from woolly.server.models.lifecycle import LoadedModel
from woolly.server.models.registry import ANY
from woolly.server.routes import Dialect, Events, Generation, Head, Job, Streamed

if TYPE_CHECKING:
    from woolly.llm.prompter import Prepared

T = TypeVar("T")
NOTES = "x-woolly-notes"  # the header with the fields of a request that had no effect
RESUMING, RESUMING_S = b": resuming\n\n", 1.0  # in the silence of an answer that has lost its replica
Notes: TypeAlias = dict[str, None]  # in the order in which they came


class Writer(Protocol):
    """Where an answer goes: whole by `reply`, or as a stream by `begin` and `write`."""

    id: str
    extra: dict[str, str]  # headers

    async def reply(self, reply: Reply[Any]) -> None: ...
    async def begin(self, status: int, headers: Mapping[str, str]) -> None: ...
    async def write(self, data: bytes, *, more: bool = True) -> None: ...


class Answered:
    """A writer that keeps one whole answer, for callers inside this process."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.extra: dict[str, str] = {}
        self.body: Any = None

    async def reply(self, reply: Reply[Any]) -> None:
        self.body = reply.body

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        raise AssertionError("whole answers only")

    async def write(self, data: bytes, *, more: bool = True) -> None:
        raise AssertionError("whole answers only")


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
            session = await stack.enter_async_context(_in_time(turn, caller.deadline_s))
            turn_job, in_session = job, session.sampling
            job = session.with_history(_sampled(job, lambda sampling: sampling.recommended(in_session)))
        any_name = bool(job.requests) and not caller.strict
        lease = services.models.lease(job.model, job.keep_s, wanted="logits", any_name=any_name)
        loaded = await stack.enter_async_context(_in_time(lease, caller.deadline_s))
        head = _head(route, services.models.answering_name(job.model, loaded))
        if job.model not in ANY and job.model != head["model"]:
            job = replace(job, notes=(*job.notes, "model"))
        if caller.digest and (digest := await _before(caller.deadline_s, services.models.digest(loaded))):
            out.extra["x-woolly-model"] = digest
        job = _fitted(services, loaded, replace(job, load_s=time.monotonic() - begun_s), caller)
        if job.requests:
            out.extra["x-woolly-sampling"] = described(job.requests[0].sampling)
        seen = _seen(job, route, caller)
        if seen is not None:
            job = _seeded(job, caller.seed)
            head["id"] = route.prefix + blake2b(out.id.encode(), digest_size=12).hexdigest()
            out.extra["x-woolly-seed"] = str(job.requests[0].sampling.seed)
        notes = dict.fromkeys(job.notes)  # the first events may add more
        if job.remote is not None:
            await _with_tools(services, dialect, route, job, head, loaded, caller, notes, out)
            return
        job_events = _events(services, loaded, job, caller, notes)
        if session is not None:
            job_events = session.follow(turn_job.requests[0], job_events)
        async with aclosing(job_events) as events:
            if not job.requests:
                await _reply(route, job, head, [], out)
            elif route.render is None or job.stream:
                timed_events: Events = timed(events) if job.timed else events
                # Before the status, so that an early fault has its true one.
                begun = await _begun(timed_events, route.streamed_error_codes)
                job = _noted(job, notes, out)
                out.extra["x-woolly-cache"] = _reused(start for _, start in begun if isinstance(start, Start))
                frames = route.frames(job, head, _chained(begun, timed_events))
                if route.memory is not None:
                    frames = _remembered(frames, functools.partial(route.memory.keep, services.responses, caller, job))
                await send(services, Streamed(frames, route.framing), dialect.error, out, seen=seen)
            else:
                answers = await _collect(len(job.requests), events, services.settings.limits.likelihoods)
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
    box = await _before(caller.deadline_s, services.remotes.box(job.remote, caller))
    job = offering(_noted(job, notes, out), box)

    def answers(job: Job) -> AsyncGenerator[tuple[int, Event], None]:
        return _events(services, loaded, job, caller, notes)

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


def _fitted(services: Answering, loaded: LoadedModel, job: Job, caller: Caller) -> Job:
    """The job as this model answers it: with the defaults of its file, and within its context."""
    context = loaded.model.info.context
    if job.context > context:
        raise RequestError(
            f"a context of {job.context:,} tokens is asked for; {loaded.id} was loaded with {context:,}",
            suggestion="ask for less, or load it with a larger context",
            param="num_ctx",
        )
    settings, card = services.settings, loaded.model.card
    job = _sampled(job, lambda sampling: with_defaults(sampling, settings, card))
    endless = any(request.shorten and request.max_tokens == NO_LIMIT for request in job.requests)
    job = replace(job, window=context, endless=endless)
    if "seed" in settings.defaults:
        job = seeded(job, int(settings.defaults["seed"]))
    if caller.strict:
        return job
    # For other callers max_tokens is an upper bound.
    return replace(job, requests=tuple(request.with_values(shorten=True) for request in job.requests))


def _seen(job: Job, route: Generation, caller: Caller) -> int | None:
    """How many events of a stream its reader has already; None where the stream cannot be resumed.

    The events of one answer are a pure function of its request and seed: a reader that was cut off asks again, and is
    sent the events that it has not seen. Several answers of one request have no fixed order among each other, a session
    would get the question twice, and remote tools would be called again.
    """
    alone = len(job.requests) == 1 and not job.session and job.remote is None
    if caller.seen is None or (alone and job.stream and route.framing.media_type == EVENTS.media_type):
        return caller.seen
    if caller.seen:
        raise RequestError("this answer cannot be gone on with; ask for it anew", param="Last-Event-ID")
    return None


def _seeded(job: Job, seed: int | None) -> Job:
    """The job with a seed that its reader is told, and can send when it asks again."""
    request = job.requests[0]
    if request.sampling.seed is not None:
        return job
    drawn = secrets.randbits(53) if seed is None else seed  # 53 bits: exact in every JSON reader
    return replace(job, requests=(request.with_values(sampling=replace(request.sampling, seed=drawn)),))


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


def _sampled(job: Job, change: Callable[[Sampling], Sampling]) -> Job:
    """The job with the sampling of each request changed."""
    requests = (request.with_values(sampling=change(request.sampling)) for request in job.requests)
    return replace(job, requests=tuple(requests))


async def _collect(count: int, events: AsyncIterator[tuple[int, Event]], most: int) -> list[Completion]:
    by_request: list[list[Event]] = [[] for _ in range(count)]
    likely = 0
    async for index, event in events:
        by_request[index].append(event)
        if isinstance(event, Prompt | Piece):
            likely += sum(1 + len(row.top) for row in event.logprobs)
            if likely > most:
                raise RequestError(
                    f"the answer would have more than {most:,} likelihoods",
                    suggestion="stream it, or ask for fewer prompts or smaller logprobs at once",
                    param="logprobs",
                )
    return [complete(events) for events in by_request]


async def send(
    services: Answering,
    streamed: Streamed[Any],
    fault: Callable[[WoollyError, str], msgspec.Struct],
    out: Writer,
    *,
    seen: int | None = None,
) -> None:
    """Send each piece as it comes; an error, which `fault` shapes, is the last one.

    seen: number the pieces, and leave out so many of the first.
    """
    framing, number = streamed.framing, 0
    await out.begin(200, {"content-type": framing.media_type, "cache-control": "no-cache"})
    is_moving = services.is_moving
    moving = None if is_moving is None else lambda: is_moving(out.id)
    connection = _KeepAlive(out, framing.comment, services.settings.limits.comment_s, moving)
    comments = asyncio.create_task(connection.comments()) if framing.comment else None
    try:
        async with aclosing(streamed.pieces) as pieces:
            async for piece in pieces:
                if seen is None:
                    await connection.write(framing.frame(piece))
                    continue
                number += 1
                if number > seen:
                    await connection.write(b"id: %d\n" % number + framing.frame(piece))
        last = framing.last
    except WoollyError as error:
        services.counts.failed += 1
        last = framing.frame(fault(error, out.id))
    finally:
        if comments is not None:
            comments.cancel()
    await connection.write(last, more=False)


async def _begun(events: Events, streamed_error_codes: frozenset[str]) -> list[tuple[int, Any]]:
    """The events up to the first that is no `Start`; an error of these codes is an event, others are raised."""
    begun: list[tuple[int, Any]] = []
    try:
        while not begun or isinstance(begun[-1][1], Start):
            begun.append(await anext(events))
    except WoollyError as error:
        if error.code not in streamed_error_codes:
            raise
        begun.append((0, Failed(error)))
    return begun


async def _remembered(frames: AsyncGenerator[T, None], keep: Callable[[T], None]) -> AsyncGenerator[T, None]:
    """The pieces of a stream, each of which is kept before it is sent."""
    async with aclosing(frames):
        async for piece in frames:
            keep(piece)
            yield piece


async def _chained(begun: list[tuple[int, Any]], events: Events) -> Events:
    for pair in begun:
        if isinstance(pair[1], Failed):
            raise pair[1].error
        yield pair
    async for pair in events:
        yield pair


class _KeepAlive:
    """Writes to a reader, and keeps the connection alive where there is nothing to write.

    moving: at a gateway, whether the answer waits for another replica; the comments say so then.
    """

    def __init__(self, out: Writer, comment: bytes, comment_s: float, moving: Callable[[], bool] | None) -> None:
        self.out = out
        self.comment = comment
        self.comment_s = comment_s
        self.moving = moving
        self._last_s = time.monotonic()
        self._writing = False

    async def comments(self) -> None:
        """Send a comment whenever nothing was sent for a while, so that no proxy closes the connection."""
        while True:
            after_s, comment = self.comment_s, self.comment
            if self.moving is not None and self.moving():
                after_s, comment = min(RESUMING_S, after_s), RESUMING
            silent = time.monotonic() - self._last_s
            if silent >= after_s and not self._writing:
                await self.write(comment)
            left = after_s if silent >= after_s else after_s - silent
            await asyncio.sleep(left if self.moving is None else min(left, RESUMING_S))

    async def write(self, data: bytes, *, more: bool = True) -> None:
        self._last_s = time.monotonic()
        self._writing = True
        try:
            await self.out.write(data, more=more)
        finally:
            self._writing = False


async def _events(
    services: Answering, loaded: LoadedModel, job: Job, caller: Caller, notes: Notes
) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of all requests of a job. One that fails ends the job; when all have ended, the job counts as done."""
    if len(job.requests) == 1:
        protect_s = services.sessions.idle_s if job.session else 0.0
        one = _one(services, loaded, job, job.requests[0], caller, notes, protect_s=protect_s)
        async with (
            _in_time(loaded.admission.permit(caller.name, row=caller.row), caller.deadline_s),
            aclosing(one) as events,
        ):
            async for event in events:
                yield 0, event
        services.counts.done += 1
        return
    queue: asyncio.Queue[tuple[int, Event | BaseException | None]] = asyncio.Queue(maxsize=32)
    turns = asyncio.Semaphore(loaded.admission.permits)  # many prompts of one body must not fill the queue
    prompts = _Prompts(services, loaded, caller)

    async def follow(index: int, request: Request) -> None:
        try:
            one = _one(services, loaded, job, request, caller, notes, prompts=prompts)
            permit = _in_time(loaded.admission.permit(caller.name, row=caller.row), caller.deadline_s)
            async with _in_time(turns, caller.deadline_s), permit, aclosing(one) as events:
                async for event in events:
                    await queue.put((index, event))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await queue.put((index, error))
        else:
            await queue.put((index, None))

    tasks = [asyncio.create_task(follow(index, request)) for index, request in enumerate(job.requests)]
    try:
        left = len(tasks)
        while left:
            index, item = await queue.get()
            if item is None:
                left -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield index, item
        services.counts.done += 1
    finally:
        prompts.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Prompts:
    """The prompts of a job, each rendered and tokenised once for all requests that differ in their sampling alone."""

    def __init__(self, services: Answering, loaded: LoadedModel, caller: Caller) -> None:
        self._workers, self._loaded, self._caller = services.workers, loaded, caller
        self._prepared: list[tuple[Request, asyncio.Task[Prepared]]] = []

    async def prepared(self, request: Request) -> Prepared:
        task = next((prepared for first, prepared in self._prepared if _same_prompt(first, request)), None)
        if task is None:
            prepare = functools.partial(self._loaded.model.prepare, request)
            task = asyncio.create_task(self._workers.run(self._caller.name, prepare))
            self._prepared.append((request, task))
        return replace(await asyncio.shield(task), request=request)

    def cancel(self) -> None:
        for _, task in self._prepared:
            task.cancel()


def _same_prompt(one: Request, other: Request) -> bool:
    names = (field.name for field in fields(Request) if field.name != "sampling")
    return all(getattr(one, name) == getattr(other, name) for name in names)


async def _one(
    services: Answering,
    loaded: LoadedModel,
    job: Job,
    request: Request,
    caller: Caller,
    notes: Notes,
    *,
    prompts: _Prompts | None = None,
    protect_s: float = 0.0,
) -> AsyncGenerator[Event, None]:
    """The events of one request. After its deadline it ends with what it has, or fails if that is nothing."""
    limits, loop = services.settings.limits, asyncio.get_running_loop()
    request = bounded(request, limits)
    unread = limits.unread_pieces if job.stream else None
    what = await prompts.prepared(request) if prompts is not None else request
    submit = functools.partial(
        loaded.model.submit, what, salt=caller.salt, key=caller.name, unread=unread, protect_s=protect_s
    )
    stream = await services.workers.run(caller.name, submit, drop=lambda stream: stream.cancel())
    notes.update(dict.fromkeys(stream.notes))
    late, begun, course = False, False, Course(job.answer_s)

    def expire() -> None:
        nonlocal late
        late = True
        stream.cancel()

    timer = loop.call_at(caller.deadline_s, expire)
    services.counts.active += 1
    try:
        async with aclosing(aiter(stream)) as events:  # type: ignore[type-var]
            async for event in events:
                match event:
                    case Failed(error=error):
                        raise error
                    case Start(prompt_tokens=count):
                        course.begin(event)
                        if not job.endless and count + (request.max_tokens or 0) > loaded.model.info.context:
                            notes["max_tokens"] = None
                    case Text() | Thought() | CallStart() | Arguments():
                        if not begun:
                            services.counts.first(loaded.id, loop.time() - caller.begun_s)
                        begun = True
                        if job.silent:
                            continue
                        if isinstance(event, PIECES):
                            course.take(event)
                            if course.over:
                                stream.cancel()
                    case End(reason="cancelled"):
                        event = _cut(event, late=late or course.over, begun=begun)
                        if late:
                            notes["request_timeout"] = None
                if isinstance(event, End):
                    services.counts.add(loaded.id, event, loop.time() - caller.begun_s)
                    event = _unsaid(event) if job.silent else event
                yield event
    finally:
        services.counts.active -= 1
        timer.cancel()
        stream.cancel()


def _unsaid(end: End) -> End:
    """The end of an answer of which nobody sees anything."""
    return replace(end, reason="length", usage=replace(end.usage, completion_tokens=0))


def _cut(end: End, *, late: bool, begun: bool) -> End:
    """The end of an answer that was cancelled, though its reader did not cancel it."""
    if not late:
        raise BusyError("the model was unloaded", suggestion="ask again", code="overloaded")
    if not begun:
        raise _too_late()
    return replace(end, reason="length")


@asynccontextmanager
async def _in_time(waited: AbstractAsyncContextManager[T], deadline: float) -> AsyncIterator[T]:
    """Enter what may take a while (a model that loads, a permit), but not past the deadline of the answer."""
    async with AsyncExitStack() as stack:
        yield await _before(deadline, stack.enter_async_context(waited))


async def _before(deadline: float, work: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout_at(deadline):
            return await work
    except TimeoutError:
        raise _too_late() from None


def _too_late() -> NativeError:
    return NativeError("the answer took too long", suggestion="ask for less, or later", code="timeout")
