"""What callers have out of the server: bounded for each and in all, and back to nothing when they have gone."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.conftest import Live
from woolly.errors import BusyError
from woolly.io.cancellation import check
from woolly.server.accounts import Accounts, Bound, Grant, Resource
from woolly.server.app import DISK_THREADS
from woolly.server.fair_queue import FairQueue
from woolly.server.workers import THREADS, Workers

BOUND = Bound(each=3, all=5)


def accounts() -> Accounts:
    return Accounts({Resource.BODY_BYTES: BOUND, Resource.THREADS: THREADS})


def test_a_holder_has_no_more_than_its_share_and_all_no_more_than_there_is() -> None:
    mine = accounts()
    mine.take("a", Resource.BODY_BYTES, 3)
    with pytest.raises(BusyError, match="too many bytes of bodies"):
        mine.take("a", Resource.BODY_BYTES, 1)
    mine.take("b", Resource.BODY_BYTES, 2)
    with pytest.raises(BusyError, match="try again in a moment"):
        mine.take("c", Resource.BODY_BYTES, 1)
    assert (mine.out(Resource.BODY_BYTES), mine.out(Resource.BODY_BYTES, "c")) == (5, 0)


def test_what_is_given_back_twice_is_given_back_once() -> None:
    mine = accounts()
    grant_of_two = mine.take("a", Resource.BODY_BYTES, 2)
    with mine.take("a", Resource.BODY_BYTES, 1) as grant:
        grant.give_back()
    assert mine.out(Resource.BODY_BYTES, "a") == 2
    grant_of_two.give_back()
    assert mine.empty


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.booleans()), max_size=40))
def test_the_accounts_are_always_the_sum_of_the_grants(moves: list[tuple[str, int, bool]]) -> None:
    mine, grants = accounts(), list[Grant]()
    for holder, amount, back in moves:
        if back and grants:
            grants.pop(0).give_back()
            continue
        try:
            grants.append(mine.take(holder, Resource.BODY_BYTES, amount))
        except BusyError:
            assert not mine.has_room(holder, Resource.BODY_BYTES, amount)
        for name in "abc":
            out = mine.out(Resource.BODY_BYTES, name)
            assert out == sum(grant.amount for grant in grants if grant.holder == name) <= BOUND.each
        assert mine.out(Resource.BODY_BYTES) == sum(grant.amount for grant in grants) <= BOUND.all
    for grant in grants:
        grant.give_back()
    assert mine.empty


def test_clients_have_turns_one_after_another_however_many_requests_each_has() -> None:
    async def story() -> list[str]:
        queue, order = FairQueue[None](lambda _: None), list[str]()

        async def one(client: str) -> None:
            await queue.wait(client)
            order.append(client)

        tasks = [asyncio.create_task(one(client)) for client in ("a", "a", "a", "b", "c")]
        await asyncio.sleep(0)
        while queue.serve(lambda _: None):
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(story()) == ["a", "b", "c", "a", "a"]


def test_a_turn_that_was_given_to_a_request_which_is_cancelled_goes_back() -> None:
    async def story() -> list[str]:
        back = list[str]()
        queue = FairQueue[str](back.append)
        waiting = asyncio.create_task(queue.wait("a"))
        await asyncio.sleep(0)
        assert queue.serve(lambda client: f"turn of {client}")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return back

    assert asyncio.run(story()) == ["turn of a"]


def working(story: Callable[[Workers, Accounts], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        mine = accounts()
        workers = Workers(mine)
        try:
            await story(workers, mine)
        finally:
            workers.close()

    asyncio.run(run())


def test_a_caller_with_much_work_does_not_have_all_threads() -> None:
    async def story(workers: Workers, mine: Accounts) -> None:
        go = threading.Event()
        heavy = [asyncio.create_task(workers.run("heavy", go.wait)) for _ in range(20)]
        await asyncio.sleep(0)
        assert mine.out(Resource.THREADS, "heavy") == THREADS.each < THREADS.all
        assert await workers.run("light", lambda: "done") == "done"  # while all of the heavy one's work waits
        go.set()
        await asyncio.gather(*heavy)
        assert mine.empty

    working(story)


def test_work_that_nobody_waits_for_any_more_stops_and_only_then_is_its_thread_free() -> None:
    async def story(workers: Workers, mine: Accounts) -> None:
        begun, look, stopped = threading.Event(), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            look.wait()
            try:
                check()
            finally:
                stopped.set()

        task = asyncio.create_task(workers.run("gone", work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert mine.out(Resource.THREADS, "gone") == 1
        look.set()
        await asyncio.to_thread(stopped.wait)
        while not mine.empty:
            await asyncio.sleep(0)

    working(story)


def test_the_result_of_work_whose_caller_has_gone_is_undone() -> None:
    async def story(workers: Workers, mine: Accounts) -> None:
        begun, go, undone = threading.Event(), threading.Event(), list[str]()

        def work() -> str:
            begun.set()
            go.wait()
            return "a sequence"

        task = asyncio.create_task(workers.run("gone", work, drop=undone.append))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        go.set()
        while not mine.empty:
            await asyncio.sleep(0)
        assert undone == ["a sequence"]

    working(story)


def test_a_result_that_comes_as_its_caller_goes_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(workers: Workers, mine: Accounts) -> None:
        undone = list[str]()
        move = mine._move

        def moved(holder: str, resource: Resource, amount: int) -> None:
            move(holder, resource, amount)
            if amount < 0:  # the work has ended; the caller goes before it is told
                asyncio.get_running_loop().call_soon(task.cancel)

        monkeypatch.setattr(mine, "_move", moved)
        task = asyncio.create_task(workers.run("gone", lambda: "a sequence", drop=undone.append))
        await asyncio.gather(task, return_exceptions=True)
        for _ in range(10):
            await asyncio.sleep(0)
        assert task.cancelled() and mine.empty
        assert undone == ["a sequence"]

    working(story)


def test_work_that_waits_for_a_thread_is_not_begun_when_its_caller_goes() -> None:
    async def story(workers: Workers, mine: Accounts) -> None:
        go, begun = threading.Event(), list[int]()
        running = [asyncio.create_task(workers.run("a", go.wait)) for _ in range(int(THREADS.each))]
        waiting = asyncio.create_task(workers.run("a", lambda: begun.append(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        go.set()
        await asyncio.gather(*running)
        assert mine.empty
        assert begun == []

    working(story)


def test_f28_the_threads_of_a_server_have_begun_before_it_answers(live: Live) -> None:
    names = Counter(thread.name.rpartition("_")[0] for thread in threading.enumerate())
    assert names["woolly-work"] >= THREADS.all and names["woolly-disk"] >= DISK_THREADS and names["woolly-models"] >= 2
    assert any(thread.name == "woolly-log" for thread in threading.enumerate())


def test_a_check_outside_of_work_in_a_thread_does_nothing() -> None:
    check()
