"""The events of a job: each request gets a permit, is prepared in a thread, and answered by the engine of its model."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from woolly.errors import BusyError, RequestError, WoollyError
from woolly.request import (
    Completion,
    End,
    Event,
    Failed,
    Piece,
    Prompt,
    Request,
    Start,
    SubmitOptions,
    complete,
)
from woolly.server.generate.answering import Answering
from woolly.server.generate.course import PIECES, Course
from woolly.server.generate.deadline import in_time, too_late
from woolly.server.generate.sampling import bounded
from woolly.server.http.caller import Caller
from woolly.server.models.loaded import LoadedModel
from woolly.server.routes import Events, Job

if TYPE_CHECKING:
    from woolly.llm.prompter import Prepared

Notes: TypeAlias = dict[str, None]  # in the order in which they came


async def events_of(
    services: Answering, loaded: LoadedModel, job: Job, caller: Caller, notes: Notes
) -> AsyncGenerator[tuple[int, Event], None]:
    """The events of all requests of a job. One that fails ends the job; when all have ended, the job counts as done."""
    if len(job.requests) == 1:
        protect_s = services.sessions.idle_s if job.session else 0.0
        one = _one(services, loaded, job, job.requests[0], caller, notes, protect_s=protect_s)
        async with (
            in_time(loaded.admission.permit(caller.name, row=caller.row), caller.deadline_s),
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
            permit = in_time(loaded.admission.permit(caller.name, row=caller.row), caller.deadline_s)
            async with in_time(turns, caller.deadline_s), permit, aclosing(one) as events:
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
    what = await prompts.prepared(request) if prompts is not None else request
    options = SubmitOptions(caller.salt, caller.name, limits.unread_pieces if job.stream else None, protect_s)
    submit = functools.partial(loaded.model.submit, what, options)
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
                    case End(reason="cancelled"):
                        event = _cut(event, late=late or course.over, begun=begun)
                        if late:
                            notes["request_timeout"] = None
                    case _ if not isinstance(event, Prompt | End):  # a piece of the answer
                        if not begun:
                            services.counts.first(loaded.id, loop.time() - caller.begun_s)
                        begun = True
                        if job.silent:
                            continue
                        if isinstance(event, PIECES):
                            course.take(event)
                            if course.over:
                                stream.cancel()
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
        raise too_late()
    return replace(end, reason="length")


async def begun_events(events: Events, streamed_error_codes: frozenset[str]) -> list[tuple[int, Any]]:
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


async def chained(begun: list[tuple[int, Any]], events: Events) -> Events:
    for pair in begun:
        if isinstance(pair[1], Failed):
            raise pair[1].error
        yield pair
    async for pair in events:
        yield pair


async def collected(count: int, events: AsyncIterator[tuple[int, Event]], most: int) -> list[Completion]:
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
