"""Rows of batches come after all other requests, and still make progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from woolly.config.serving import SERVING
from woolly.errors import BusyError
from woolly.server.models.admission import AdmissionQueue


class Crowd:
    """Clients that hold permits of a queue, or wait for one."""

    def __init__(self, permits: int) -> None:
        self.queue = AdmissionQueue(permits, SERVING)
        self.holding: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, name: str, *, row: bool = False, count: int = 1) -> None:
        async def hold() -> None:
            async with self.queue.permit(name, row=row):
                left = asyncio.Event()
                self.holding.append((name, left))
                await left.wait()

        self.tasks += [asyncio.create_task(hold()) for _ in range(count)]
        await settle()

    async def leave(self, name: str) -> None:
        pair = next(pair for pair in self.holding if pair[0] == name)
        self.holding.remove(pair)
        pair[1].set()
        await settle()

    def names(self) -> str:
        return "".join(sorted(name for name, _ in self.holding))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def crowd(permits: int) -> AsyncIterator[Crowd]:
    waiting = Crowd(permits)
    yield waiting
    for task in waiting.tasks:
        task.cancel()
    await asyncio.gather(*waiting.tasks, return_exceptions=True)
    assert (waiting.queue.busy, waiting.queue.rows, waiting.queue.waiting) == (0, 0, 0)


def test_rows_leave_permits_free_for_whoever_comes() -> None:
    async def run() -> None:
        async with crowd(8) as c:
            await c.come("r", row=True, count=20)
            assert c.names() == "r" * 6 and c.queue.waiting == 0
            await c.come("a", count=2)
            assert c.names() == "aa" + "r" * 6

    asyncio.run(run())


def test_beside_requests_rows_have_one_permit() -> None:
    async def run() -> None:
        async with crowd(4) as c:
            await c.come("a")
            await c.come("r", row=True, count=5)
            assert c.names() == "ar"
            await c.leave("r")
            assert c.names() == "ar"  # another row's turn
            await c.leave("a")
            assert c.names() == "rrr"

    asyncio.run(run())


def test_a_free_permit_goes_to_a_request_before_any_row() -> None:
    async def run() -> None:
        async with crowd(2) as c:
            await c.come("a", count=2)
            await c.come("r", row=True, count=2)
            await c.come("b")
            await c.leave("a")
            assert c.names() == "ab"
            await c.leave("a")
            assert c.names() == "br"

    asyncio.run(run())


def test_with_one_permit_a_row_has_it_when_no_request_wants_it() -> None:
    async def run() -> None:
        async with crowd(1) as c:
            await c.come("r", row=True, count=2)
            await c.come("a")
            assert c.names() == "r"
            await c.leave("r")
            assert c.names() == "a"
            await c.leave("a")
            assert c.names() == "r"

    asyncio.run(run())


def test_rows_do_not_fill_the_queue_of_others_and_are_fair_among_themselves() -> None:
    async def run() -> None:
        async with crowd(1) as c:
            await c.come("r", row=True, count=SERVING.waiting + 10)
            await c.come("s", row=True)
            await c.come("a")  # is not refused
            await c.leave("r")
            await c.leave("a")
            await c.leave("r")
            assert c.names() == "s"

    asyncio.run(run())


def test_a_row_that_is_cancelled_when_its_permit_comes_gives_it_back() -> None:
    async def run() -> None:
        async with crowd(1) as c:
            await c.come("r", row=True, count=3)
            c.holding[0][1].set()
            c.holding.clear()
            await asyncio.sleep(0)
            c.tasks[1].cancel()
            await settle()
            assert c.names() == "r" and c.queue.rows == 1

    asyncio.run(run())


def test_a_queue_that_closes_refuses_rows_too() -> None:
    async def run() -> None:
        async with crowd(1) as c:
            await c.come("r", row=True, count=2)
            c.queue.close()
            with pytest.raises(BusyError):
                await c.tasks[1]

    asyncio.run(run())
