"""Events of an answer for the dialects to write: whole, and cut into single characters, which must give the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from woolly.request import Arguments, CallStart, Completion, End, Event, Start, Text, Thought, Timings, Usage, complete
from woolly.server.routes import Generation, Head, Job

HEAD = Head(id="x-1", created=1_700_000_000, model="beta")
TIMINGS = Timings(waited_s=0.25, prompt_s=0.5, answer_s=1.0, prompt_rate=8.0, answer_rate=4.0)


def end(reason: Any = "stop", **more: Any) -> End:
    return End(reason, Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=5), TIMINGS, 7, **more)


START = Start(prompt_tokens=9, cached_tokens=4)
SAID = (START, Text("Hel", (1,)), Text("lo", (2,)), end())
CALLED = (
    START,
    Thought("It is ", (1,)),
    Thought("cold.", (2,)),
    Text("Let me see.", (3,)),
    CallStart("call_1", "weather"),
    Arguments('{"city": "Os', (4,)),
    Arguments('lo"}', (5,)),
    CallStart("call_2", "clock"),
    Arguments("{}", (6,)),
    end("calls"),
)


def byte_by_byte(events: Iterable[Event]) -> Iterator[Event]:
    """The same answer, with each character as a piece of its own."""
    for event in events:
        if isinstance(event, Text | Thought | Arguments):
            yield from (type(event)(sign, event.tokens) for sign in event.text)
        else:
            yield event


def rendered(route: Generation, job: Job, events: Iterable[Event]) -> Any:
    """The whole answer of a route."""
    answers: list[Completion] = [complete(events)]
    assert route.render is not None
    return route.render(job, HEAD, answers)


def streamed(route: Generation, job: Job, events: Iterable[Event]) -> list[Any]:
    """The events of a streamed answer of a route."""

    async def pairs() -> AsyncIterator[tuple[int, Event]]:
        for event in events:
            yield 0, event

    async def collect() -> list[Any]:
        return [frame async for frame in route.frames(job, HEAD, pairs())]

    return asyncio.run(collect())
