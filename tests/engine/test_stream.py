"""A stream is read with `for` and with `async for`; leaving the loop early cancels the answer."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import pytest

from woolly.engine import Stream
from woolly.errors import NativeError
from woolly.request import End, Event, Failed, Text, Timings, Usage

END = End("stop", Usage(1, 0, 2), Timings(0, 0, 0, 0, 0), 7)
EVENTS: tuple[Event, ...] = (Text("a", (1,)), Text("b", (2,)), END)


def made(*events: Event) -> tuple[Stream, list[str]]:
    cancels: list[str] = []
    stream = Stream(lambda: cancels.append("cancelled"))
    for event in events:
        stream.put(event)
    return stream, cancels


def late(stream: Stream, *events: Event) -> threading.Thread:
    """Put events from another thread, with a pause before each, so that the reader waits for it."""

    def work() -> None:
        for event in events:
            threading.Event().wait(0.005)
            stream.put(event)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_events_come_in_order_and_the_loop_ends_with_the_last() -> None:
    stream, cancels = made()
    thread = late(stream, *EVENTS)
    assert tuple(stream) == EVENTS
    thread.join()
    assert cancels == []


def test_a_stream_that_is_over_has_no_more_events() -> None:
    stream, cancels = made(*EVENTS)
    assert tuple(stream) == EVENTS
    assert tuple(stream) == ()
    stream.cancel()
    assert cancels == []


def test_events_can_be_asked_for_one_by_one() -> None:
    stream, _ = made(*EVENTS)
    assert [next(stream), next(stream), next(stream)] == list(EVENTS)
    with pytest.raises(StopIteration):
        next(stream)


def test_leaving_the_loop_cancels() -> None:
    stream, cancels = made(*EVENTS[:2])
    for _ in stream:
        break
    assert cancels == ["cancelled"]


def test_an_exception_in_the_loop_cancels() -> None:
    stream, cancels = made(*EVENTS[:2])
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            raise KeyboardInterrupt
    assert cancels == ["cancelled"]


def test_closing_cancels() -> None:
    stream, cancels = made(*EVENTS[:2])
    with closing(stream):
        next(stream)
    assert cancels == ["cancelled"]


def test_a_failure_is_a_last_event() -> None:
    stream, cancels = made(EVENTS[0], Failed(NativeError("broken")))
    assert [type(event) for event in stream] == [Text, Failed]
    assert cancels == []


def test_an_event_loop_reads_the_same_events() -> None:
    async def read() -> list[Event]:
        stream, cancels = made(EVENTS[0])
        thread = late(stream, *EVENTS[1:])
        events = [event async for event in stream]
        thread.join()
        assert cancels == []
        return events

    assert tuple(asyncio.run(read())) == EVENTS


def test_a_cancelled_task_cancels() -> None:
    stream, cancels = made(EVENTS[0])

    async def read() -> None:
        async for _ in stream:
            pass

    async def main() -> None:
        task = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cancels == ["cancelled"]


def test_leaving_an_async_loop_cancels() -> None:
    stream, cancels = made(EVENTS[0])

    async def main() -> None:
        async for _ in stream:
            break

    asyncio.run(main())
    assert cancels == ["cancelled"]


def test_a_reader_whose_event_loop_is_gone_cancels() -> None:
    stream, cancels = made()
    loop = asyncio.new_event_loop()
    reader = stream.__aiter__()

    async def begin() -> None:
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # the task is abandoned on purpose

    loop.run_until_complete(begin())
    loop.close()
    stream.put(EVENTS[0])
    assert "cancelled" in cancels
