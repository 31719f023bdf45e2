"""The one handler of generation: every dialect's requests pass here, whole and streamed.

The line gives a place, the model's thread computes, the event loop only carries. A client that goes away at any moment
takes its sequences with it: in line, while the prompt is rendered, in the prompt and in the answer.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from contextvars import copy_context
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
    Start,
    Text,
    Thought,
    Usage,
    complete,
)
from woolly.server.dialects import ole
from woolly.server.dialects.fields import refuse_unknown
from woolly.server.door import Caller, Dialect, Events, Generation, Head, Job, Reply, Streamed
from woolly.server.errors import key_needed
from woolly.server.frames import EVENTS
from woolly.server.models import LoadedModel
from woolly.server.registry import ANY
from woolly.server.remote import offering, rounds
from woolly.server.sessions import IDLE_S

if TYPE_CHECKING:
    from woolly.prompter import Prepared
    from woolly.server.app import App

T = TypeVar("T")
RESUMING, RESUMING_S = b": resuming\n\n", 1.0  # in the silence of an answer that has lost its replica
Notes: TypeAlias = dict[str, None]  # in the order in which they came


class Writer(Protocol):
    """Where an answer goes: whole by `reply`, or as a stream by `begin` and `write`."""

    id: str
    extra: dict[str, str]  # headers

    async def reply(self, reply: Reply[Any]) -> None: ...
    async def begin(self, status: int, headers: Mapping[str, str]) -> None: ...
    async def write(self, data: bytes, *, more: bool = True) -> None: ...


async def answer(app: App, dialect: Dialect, door: Generation, job: Job, caller: Caller, out: Writer) -> None:
    """Answer a job, whole or streamed. Cancelled, it leaves nothing behind."""
    if caller.strict:
        refuse_unknown(job.notes)
    if door.whole is None:
        job = replace(job, stream=True)
    if job.keep_s is not None and not job.unload and not caller.trusted:  # how long is for those with a key to say
        job = replace(job, keep_s=None, notes=(*job.notes, "keep_alive"))
    caller = replace(caller, deadline_s=ole.deadline(caller, job, app.settings.limits))
    if job.unload:
        await _unload(app, job.model, caller)
        await _reply(door, job, _head(door, job.model), [], out)
        return
    begun_s = time.monotonic()
    async with AsyncExitStack() as stack:
        session = None
        if job.session:
            turn = app.sessions.turn(caller.name, job.session)
            session = await stack.enter_async_context(_in_time(turn, caller.deadline_s))
            asked, job = job, session.asks(_with_defaults(job, session.kept.sampling))
        lease = app.models.lease(job.model, job.keep_s)
        loaded = await stack.enter_async_context(_in_time(lease, caller.deadline_s))
        head = _head(door, loaded.id if job.model in ANY else job.model)
        if caller.digest and (digest := await _before(caller.deadline_s, app.models.digest(loaded))):
            out.extra["x-woolly-model"] = digest
        job = _fitted(app, loaded, replace(job, load_s=time.monotonic() - begun_s), caller)
        seen = _seen(job, door, caller)
        if seen is not None:
            job = _seeded(job, caller.seed)
            head["id"] = door.prefix + blake2b(out.id.encode(), digest_size=12).hexdigest()
            out.extra["x-woolly-seed"] = str(job.requests[0].sampling.seed)
        notes = dict.fromkeys(job.notes)  # more may come with the first events
        if job.remote is not None:
            await _with_tools(app, dialect, door, job, head, loaded, caller, notes, out)
            return
        made = _events(app, loaded, job, caller, notes)
        if session is not None:
            made = app.sessions.follow(session, asked.requests[0], made)
        async with aclosing(made) as events:
            if not job.requests:
                await _reply(door, job, head, [], out)
            elif door.whole is None or job.stream:
                begun = await _begun(events, door.told)  # before the status, so that an early fault has its true one
                job = _noted(job, notes, out)
                out.extra["x-woolly-cache"] = _reused(start for _, start in begun if isinstance(start, Start))
                frames = door.frames(job, head, _chained(begun, events))
                if door.memory is not None:
                    frames = _remembered(frames, functools.partial(door.memory.keep, app, caller, job))
                await send(app, Streamed(frames, door.framing), dialect.error, out, seen=seen)
            else:
                answers = await _collect(len(job.requests), events, app.settings.limits.likelihoods)
                job = _noted(job, notes, out)
                out.extra["x-woolly-cache"] = _reused(one.usage for one in answers)
                out.extra["x-woolly-seed"] = str(answers[0].seed)
                record = door.whole(job, head, answers)
                if door.memory is not None:
                    door.memory.keep(app, caller, job, record)
                await out.reply(Reply(record))


async def _with_tools(
    app: App,
    dialect: Dialect,
    door: Generation,
    job: Job,
    head: Head,
    loaded: LoadedModel,
    caller: Caller,
    notes: Notes,
    out: Writer,
) -> None:
    """Answer a job whose model may call tools of MCP servers, which are called here."""
    assert job.remote is not None
    box = await _before(caller.deadline_s, app.remotes.box(job.remote))
    job = offering(_noted(job, notes, out), box)

    def answers(job: Job) -> AsyncGenerator[tuple[int, Event], None]:
        return _events(app, loaded, job, caller, notes)

    async with aclosing(rounds(app.remotes, box, job, answers, caller.deadline_s)) as events:
        frames = door.frames(job, head, events)
        if door.memory is not None:
            frames = _remembered(frames, functools.partial(door.memory.keep, app, caller, job))
        if job.stream:
            await send(app, Streamed(frames, door.framing), dialect.error, out)
            return
        async with aclosing(frames) as pieces:
            async for piece in pieces:
                last = piece
        assert door.last is not None
        await out.reply(Reply(door.last(last)))


def _fitted(app: App, loaded: LoadedModel, job: Job, caller: Caller) -> Job:
    """The job as this model is to answer it."""
    context = loaded.model.info.context
    if job.context > context:
        raise RequestError(
            f"a context of {job.context:,} tokens is asked for; {loaded.id} was loaded with {context:,}",
            suggestion="ask for less, or load it with a larger context",
            param="num_ctx",
        )
    if app.settings.use_model_defaults:
        job = _with_defaults(job, loaded.model.card.sampling)
    if caller.strict:
        return job
    # For everybody else max_tokens is an upper bound.
    return replace(job, requests=tuple(replace(request, shorten=True) for request in job.requests))


def _seen(job: Job, door: Generation, caller: Caller) -> int | None:
    """How many events of a stream its reader has already; None where the stream is not one that can be gone on with.

    The events of one answer are a pure function of its request and seed: who was cut off asks again, and is sent what
    it has not seen. Answers side by side take turns as it comes, a session would hear the question twice, and tools of
    others would be called again.
    """
    alone = len(job.requests) == 1 and not job.session and job.remote is None
    if caller.seen is None or (alone and job.stream and door.framing.media_type == EVENTS.media_type):
        return caller.seen
    if caller.seen:
        raise RequestError("this answer cannot be gone on with; ask for it anew", param="Last-Event-ID")
    return None


def _seeded(job: Job, seed: int | None) -> Job:
    """The job with a seed that its reader can name again."""
    request = job.requests[0]
    if request.sampling.seed is not None:
        return job
    drawn = secrets.randbits(53) if seed is None else seed  # 53 bits: exact in every JSON reader
    return replace(job, requests=(replace(request, sampling=replace(request.sampling, seed=drawn)),))


def _head(door: Generation, model: str) -> Head:
    return Head(id=door.prefix + secrets.token_hex(12), created=int(time.time()), model=model)


async def _reply(door: Generation, job: Job, head: Head, answers: list[Completion], out: Writer) -> None:
    assert door.whole is not None
    await out.reply(Reply(door.whole(job, head, answers)))


async def _unload(app: App, name: str, caller: Caller) -> None:
    """Unload a model, for whoever may; one that is not loaded is no error."""
    if not caller.trusted:
        raise key_needed()
    if (await app.models.record(name)).loaded:
        await app.models.unload(name)


def _reused(counts: Iterable[Start | Usage]) -> str:
    """How many tokens of the prompts came from where, for a header; of a stream, those that have begun by then."""
    rows = [(one.prompt_tokens, one.cached_tokens, one.disk_tokens) for one in counts]
    prompts, cached, disk = (sum(row[column] for row in rows) for column in range(3))
    return f"memory={cached - disk}, disk={disk}, none={prompts - cached}"


def _noted(job: Job, notes: Notes, out: Writer) -> Job:
    """The job with all that is to be told about it, in the headers too."""
    if notes:
        out.extra["x-woolly-notes"] = ", ".join(notes)[:1024]
    return replace(job, notes=tuple(notes))


def _with_defaults(job: Job, recommended: Mapping[str, Any]) -> Job:
    """The job with what the model's file recommends, for all that the body leaves out."""
    given = job.fields if job.given is None else job.given
    left_out = {name: value for name, value in recommended.items() if getattr(given, name, None) is None}
    requests = (replace(request, sampling=replace(request.sampling, **left_out)) for request in job.requests)
    return replace(job, requests=tuple(requests))


async def _collect(count: int, events: AsyncIterator[tuple[int, Event]], most: int) -> list[Completion]:
    every: list[list[Event]] = [[] for _ in range(count)]
    likely = 0
    async for index, event in events:
        every[index].append(event)
        if isinstance(event, Prompt | Piece):
            likely += sum(1 + len(row.top) for row in event.logprobs)
            if likely > most:
                raise RequestError(
                    f"the answer would have more than {most:,} likelihoods",
                    suggestion="stream it, or ask for fewer prompts or smaller logprobs at once",
                    param="logprobs",
                )
    return [complete(own) for own in every]


async def send(
    app: App,
    made: Streamed[Any],
    fault: Callable[[WoollyError, str], msgspec.Struct],
    out: Writer,
    *,
    seen: int | None = None,
) -> None:
    """Send each piece as it comes; an error, which `fault` shapes, is the last.

    seen: pieces are numbered, and so many of the first are not sent.
    """
    framing, number = made.framing, 0
    await out.begin(200, {"content-type": framing.media_type, "cache-control": "no-cache"})
    fleet = app.fleet
    moving = None if fleet is None else lambda: fleet.is_moving(out.id)
    connection = _KeepAlive(out, framing.comment, app.settings.limits.comment_s, moving)
    comments = asyncio.create_task(connection.comments()) if framing.comment else None
    try:
        async with aclosing(made.pieces) as pieces:
            async for piece in pieces:
                if seen is None:
                    await connection.write(framing.frame(piece))
                    continue
                number += 1
                if number > seen:
                    await connection.write(b"id: %d\n" % number + framing.frame(piece))
        last = framing.last
    except WoollyError as error:
        app.counts.failed += 1
        last = framing.frame(fault(error, out.id))
    finally:
        if comments is not None:
            comments.cancel()
    await connection.write(last, more=False)


async def _begun(events: AsyncIterator[tuple[int, Event]], told: frozenset[str]) -> list[tuple[int, Event]]:
    """The events up to the first that is more than the beginning of work; an error of these codes is one of them."""
    begun: list[tuple[int, Event]] = []
    try:
        while not begun or isinstance(begun[-1][1], Start):
            begun.append(await anext(events))
    except WoollyError as error:
        if error.code not in told:
            raise
        begun.append((0, Failed(error)))
    return begun


async def _remembered(frames: AsyncGenerator[T, None], keep: Callable[[T], None]) -> AsyncGenerator[T, None]:
    """The pieces of a stream; each is kept before anybody is told of it."""
    async with aclosing(frames):
        async for piece in frames:
            keep(piece)
            yield piece


async def _chained(begun: list[tuple[int, Event]], events: AsyncIterator[tuple[int, Event]]) -> Events:
    for pair in begun:
        if isinstance(pair[1], Failed):
            raise pair[1].error
        yield pair
    async for pair in events:
        yield pair


class _KeepAlive:
    """Writes to a reader, and keeps the connection alive where there is nothing to write.

    moving: tells, at a gate, whether the answer waits for another replica to go on; such a silence is explained.
    """

    def __init__(self, out: Writer, comment: bytes, comment_s: float, moving: Callable[[], bool] | None) -> None:
        self.out = out
        self.comment = comment
        self.comment_s = comment_s
        self.moving = moving
        self._last_s = time.monotonic()
        self._writing = False

    async def comments(self) -> None:
        """Send a comment whenever nothing was sent for a while, so that nobody between us closes the connection."""
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
    app: App, loaded: LoadedModel, job: Job, caller: Caller, notes: Notes
) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of a job. A failed request ends them all; when all have come, the job counts as done."""
    if len(job.requests) == 1:
        protect_s = IDLE_S if job.session else 0.0
        one = _one(app, loaded, job.requests[0], caller, notes, streamed=job.stream, protect_s=protect_s)
        async with _in_time(loaded.line.place(caller.name, row=caller.row), caller.deadline_s), aclosing(one) as events:
            async for event in events:
                yield 0, event
        app.counts.done += 1
        return
    queue: asyncio.Queue[tuple[int, Event | BaseException | None]] = asyncio.Queue(maxsize=32)
    turns = asyncio.Semaphore(loaded.line.places)  # many prompts of one body must not fill the line
    prompts = _Prompts(app, loaded)

    async def follow(index: int, request: Request) -> None:
        try:
            one = _one(app, loaded, request, caller, notes, streamed=job.stream, prompts=prompts)
            place = _in_time(loaded.line.place(caller.name, row=caller.row), caller.deadline_s)
            async with _in_time(turns, caller.deadline_s), place, aclosing(one) as events:
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
        app.counts.done += 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Prompts:
    """The prompts of a job: requests that differ in their sampling alone share one that is rendered and tokenised."""

    def __init__(self, app: App, loaded: LoadedModel) -> None:
        self._app, self._loaded = app, loaded
        self._prepared: list[tuple[Request, asyncio.Future[Prepared]]] = []

    async def prepared(self, request: Request) -> Prepared:
        future = next((prepared for first, prepared in self._prepared if _same_prompt(first, request)), None)
        if future is None:
            future = asyncio.get_running_loop().run_in_executor(self._app.threads, self._loaded.model.prepare, request)
            self._prepared.append((request, future))
        return replace(await asyncio.shield(future), request=request)


def _same_prompt(one: Request, other: Request) -> bool:
    names = (field.name for field in fields(Request) if field.name != "sampling")
    return all(getattr(one, name) == getattr(other, name) for name in names)


async def _one(
    app: App,
    loaded: LoadedModel,
    request: Request,
    caller: Caller,
    notes: Notes,
    *,
    streamed: bool,
    prompts: _Prompts | None = None,
    protect_s: float = 0.0,
) -> AsyncGenerator[Event, None]:
    """The events of one request. One that takes too long ends with what it has, or fails if that is nothing."""
    limits, loop = app.settings.limits, asyncio.get_running_loop()
    if limits.max_tokens and (request.max_tokens or limits.max_tokens + 1) > limits.max_tokens:
        request = replace(request, max_tokens=limits.max_tokens)
    unread = limits.unread_pieces if streamed else None
    what = await prompts.prepared(request) if prompts is not None else request
    submit = functools.partial(
        loaded.model.submit, what, salt=caller.salt, key=caller.name, unread=unread, protect_s=protect_s
    )
    stream = await begun_in_thread(app, submit)
    notes.update(dict.fromkeys(stream.notes))
    late, begun = False, False

    def expire() -> None:
        nonlocal late
        late = True
        stream.cancel()

    timer = loop.call_at(caller.deadline_s, expire)
    app.counts.active += 1
    try:
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                match event:
                    case Failed(error=error):
                        raise error
                    case Start(prompt_tokens=count):
                        if count + (request.max_tokens or 0) > loaded.model.info.context:
                            notes["max_tokens"] = None
                    case Text() | Thought() | CallStart() | Arguments():
                        if not begun:
                            app.counts.first(loaded.id, loop.time() - caller.begun_s)
                        begun = True
                    case End(reason="cancelled"):
                        event = _cut(event, late=late, begun=begun)
                        notes["request_timeout"] = None
                if isinstance(event, End):
                    app.counts.add(loaded.id, event, loop.time() - caller.begun_s)
                yield event
    finally:
        app.counts.active -= 1
        timer.cancel()
        stream.cancel()


def _cut(end: End, *, late: bool, begun: bool) -> End:
    """What a cancelled answer becomes that its reader did not cancel."""
    if not late:
        raise BusyError("the model was unloaded", suggestion="ask again", code="overloaded")
    if not begun:
        raise _too_late()
    return replace(end, reason="length")


@asynccontextmanager
async def _in_time(waited: AbstractAsyncContextManager[T], deadline: float) -> AsyncIterator[T]:
    """Enter what must be waited for: a model that is loading, a place in line. Not for longer than the answer has."""
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


async def begun_in_thread(app: App, begin: Callable[[], Any]) -> Any:
    """Render, tokenise and hand over in a thread. Who goes away meanwhile must not leave a sequence behind."""
    waiting = asyncio.get_running_loop().run_in_executor(app.threads, copy_context().run, begin)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(_drop)
        raise


def _drop(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().cancel()
