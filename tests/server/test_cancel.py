"""A client that leaves ends its work: queued or answered, streaming or not. One that does not read gives way."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.server.conftest import HELLO, Live, Start
from tests.server.raw import Raw, status
from tests.server.stand_in import CancelWatch, Talker, until
from woolly.config.serving import SERVING
from woolly.device import Batch
from woolly.engine import Sequence
from woolly.errors import BusyError
from woolly.server.accounts import Bound, Resource
from woolly.server.models.admission import AdmissionQueue

UNREAD_S = 100.0  # on the clock that is put forward: far more than the delays of a busy machine


def body(**fields: object) -> dict[str, object]:
    return {"messages": HELLO, "max_tokens": 3000, "model": "beta"} | fields


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", ["close", "reset"])
def test_h32_a_client_that_leaves_frees_the_engine_within_a_step(start: Start, stream: bool, leave: str) -> None:
    live = start(step_s=0.01)
    live.chat()
    (talker,) = live.loader.talkers
    watch = CancelWatch(talker)
    raw = Raw(live.port).post("/v1/chat/completions", body(stream=stream))
    assert until(lambda: talker.engine.running)
    if stream:
        raw.read(500)
    getattr(raw, leave)()
    assert until(lambda: talker.idle)
    assert len(watch.late) == 1 and watch.late[0] <= 1
    assert talker.engine.pages.available == talker.engine.pages.count
    assert live.chat()[0] == 200


def test_h33_a_client_that_closes_its_side_counts_as_gone(start: Start) -> None:
    live = start(step_s=0.01)
    live.chat()
    (talker,) = live.loader.talkers
    watch = CancelWatch(talker)
    raw = Raw(live.port).post("/v1/chat/completions", body(stream=True))
    raw.read(500)
    raw.sock.shutdown(1)
    assert until(lambda: talker.idle)
    assert len(watch.late) == 1 and watch.late[0] <= 1


def test_h27_a_client_that_leaves_with_requests_behind_the_first_frees_the_engine(start: Start) -> None:
    live = start(step_s=0.01)
    live.chat()
    (talker,) = live.loader.talkers
    watch = CancelWatch(talker)
    raw = Raw(live.port).post("/v1/chat/completions", body(stream=True))
    raw.read(500)
    (connection,) = live.background._listener.server_state.connections
    raw.post("/v1/chat/completions", body())
    assert until(lambda: connection._unparsed)
    raw.close()
    assert until(lambda: talker.idle)
    assert len(watch.late) == 1 and watch.late[0] <= 1
    assert len(talker.seen) == 2


def test_h30_a_client_that_leaves_the_line_never_reaches_the_engine(start: Start) -> None:
    live = start(step_s=0.02)
    live.chat()
    (talker,) = live.loader.talkers
    running = [Raw(live.port).post("/v1/chat/completions", body(stream=True)) for _ in range(4)]
    assert until(lambda: len(talker.engine.running) == 4)
    waiting = Raw(live.port).post("/v1/chat/completions", body(seed=99))
    loaded = live.app.models.loaded[0]
    assert until(lambda: loaded.admission.waiting == 1)
    waiting.close()
    assert until(lambda: loaded.admission.waiting == 0)
    for raw in running:
        assert raw.read(200)
        raw.close()
    assert until(lambda: talker.idle)
    assert all(request.sampling.seed != 99 for request in talker.seen)


def test_h32_two_hundred_cancels_at_random_moments_each_free_the_engine_within_a_step(start: Start) -> None:
    live = start(step_s=0.001)
    live.chat()
    (talker,) = live.loader.talkers
    watch, chance = CancelWatch(talker), random.Random(5)
    for _ in range(200):
        raw = Raw(live.port).post("/v1/chat/completions", body(stream=chance.random() < 0.5, n=chance.choice((1, 2))))
        if chance.random() < 0.8:
            assert until(lambda: talker.engine.running)
        time.sleep(chance.random() * 0.01)
        raw.close() if chance.random() < 0.5 else raw.reset()
        assert until(lambda: talker.idle and live.app.state.open == 0)
    assert len(watch.late) > 150
    assert max(watch.late) <= 1
    assert talker.engine.pages.available == talker.engine.pages.count
    assert live.app.models.loaded[0].leases == 0
    assert live.app.counts.active == 0
    assert live.chat()[0] == 200


def unread(live: Live) -> tuple[Raw, Talker, Sequence]:
    """A client whose stream stands still because it does not read, its model, and its sequence."""
    live.chat()
    (talker,) = live.loader.talkers
    # With twenty candidates for each token the answer has megabytes, more than a kernel buffers for a reader.
    much = body(stream=True, max_tokens=4000, logprobs=True, top_logprobs=20)
    raw = Raw(live.port, receive_buffer=2048).post("/v1/chat/completions", much)
    assert until(talker.gives_way)
    return raw, talker, talker.engine.running[0]


def test_h34_a_client_that_does_not_read_gives_way_and_is_dropped(start: Start) -> None:
    live = start(limits={"unread_s": UNREAD_S, "unread": 4096, "unread_pieces": 16})
    raw, talker, slow = unread(live)
    assert live.chat()[0] == 200  # others go on
    assert dropped_after(live, lambda: talker.idle)
    # The count may still grow: a full kernel takes a few more bytes whenever it probes the window of the other side.
    assert len(slow.tokens) < 4000
    raw.close()


def dropped_after(live: Live, dropped: Callable[[], bool]) -> bool:
    """Whether a client that reads nothing is kept for UNREAD_S, and then dropped."""
    for _ in range(3):
        assert not dropped()
        live.forward(UNREAD_S / 4)
    assert not dropped()
    return until(lambda: live.forward(UNREAD_S / 4) or dropped())


@pytest.mark.parametrize("full", [True, False])
def test_h34_a_whole_answer_that_nobody_reads_is_dropped_too(start: Start, full: bool) -> None:
    live = start(limits={"unread_s": UNREAD_S, "keep_alive_s": 1.0})
    live.chat()
    connections = live.background._listener.server_state.connections
    assert until(lambda: not connections)
    raw = Raw(live.port, receive_buffer=2048)
    assert until(lambda: connections)
    (connection,) = connections
    if not full:  # then the limit begins only when the idle connection is closed with the whole answer unread
        connection.transport.set_write_buffer_limits(high=16 << 20)
    raw.post("/v1/chat/completions", body(max_tokens=2000, logprobs=True, top_logprobs=20))
    assert until(lambda: connection.transport.get_write_buffer_size() > 100_000)
    assert until(lambda: connection.output.paused if full else connection.transport.is_closing())
    assert dropped_after(live, lambda: not connections)
    assert live.chat()[0] == 200
    raw.close()


def test_h34_answers_that_nobody_reads_are_on_an_account(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("woolly.server.app.UNREAD", Bound(8_000_000, 8_000_000))
    live = start()
    accounts, text = live.app.accounts, {"content": "x" * 1_000_000}
    first = Raw(live.port, receive_buffer=2048).post("/tokenize", text)  # an answer of 4 MB
    assert until(lambda: accounts.out(Resource.UNREAD_BYTES) > 3_000_000)
    second = Raw(live.port, receive_buffer=2048).post("/tokenize", text)
    assert until(lambda: accounts.out(Resource.UNREAD_BYTES) > 6_000_000)
    third = Raw(live.port, receive_buffer=2048).post("/tokenize", text)
    assert len(third.rest()) < 4_000_000  # it is dropped, with what no more fits
    assert live.chat()[0] == 200
    assert len(second.answer()) > 4_000_000
    first.close()
    assert until(lambda: not accounts.out(Resource.UNREAD_BYTES))
    second.close()
    assert until(lambda: accounts.empty)


def test_h27_h34_answers_in_a_row_that_nobody_reads_are_dropped_too(start: Start) -> None:
    live = start(limits={"unread_s": UNREAD_S})
    raw = Raw(live.port, receive_buffer=2048)
    raw.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
    connections = live.background._listener.server_state.connections
    assert until(lambda: connections and next(iter(connections)).output.paused)
    assert dropped_after(live, lambda: not connections)
    assert until(lambda: live.app.state.open == 0)
    assert live.chat()[0] == 200
    raw.close()


def test_h35_a_client_that_reads_slowly_is_waited_for_and_slows_nobody_else(start: Start) -> None:
    live = start(limits={"unread_s": UNREAD_S, "unread": 4096, "unread_pieces": 16, "request_timeout": 100 * UNREAD_S})
    raw, talker, slow = unread(live)
    for _ in range(12):  # three times as long as a client that reads nothing is kept
        for _ in range(10):
            assert raw.sock.recv(4096)
        assert until(talker.gives_way)
        live.forward(UNREAD_S / 4)
    assert talker.engine.running == [slow]
    assert len(slow.tokens) < 4000
    begun = len(talker.seen)
    assert live.chat()[0] == 200
    assert len(talker.seen) == begun + 1
    raw.close()
    assert until(lambda: talker.idle)


def test_h31_a_client_that_leaves_while_its_prompt_is_read_stops_that(start: Start) -> None:
    live = start(step_s=0.05)
    live.chat()
    (talker,) = live.loader.talkers
    watch, before = CancelWatch(talker), talker.runner.computed
    for stream in (True, False):
        long = [{"role": "user", "content": "x" * 2000 + str(stream)}]  # 125 steps of 16 tokens, six seconds
        raw = Raw(live.port).post("/v1/chat/completions", body(messages=long, stream=stream, max_tokens=5))
        assert until(lambda: talker.engine.running and talker.engine.running[0].computed > 100)
        raw.close()
        assert until(lambda: talker.idle)
    assert watch.late and max(watch.late) <= 1
    assert talker.runner.computed - before < 2 * 1900
    assert live.chat()[0] == 200


def test_h47_a_fault_after_the_first_byte_is_an_event_without_the_word_done(start: Start) -> None:
    live = start(step_s=0.005)
    live.chat()
    (talker,) = live.loader.talkers
    run = talker.runner.run

    def fail(batch: Batch) -> object:
        if talker.engine.running and len(talker.engine.running[0].tokens) > talker.engine.running[0].prompt + 10:
            raise RuntimeError("broken on purpose")
        return run(batch)

    talker.runner.run = fail  # type: ignore[method-assign]
    for path in ("/v1/chat/completions", "/api/v1/inference/chat"):
        rows = [row for row in live.ask("POST", path, body(stream=True))[2].split(b"\n\n") if row]
        assert b"content" in rows[-2]
        assert rows[-1].startswith(b'data: {"error":')
        code, headers, answer = live.ask("POST", path, body())
        assert (code, bool(answer["error"]["message"]), bool(headers["x-request-id"])) == (500, True, True)
    talker.runner.run = run  # type: ignore[method-assign]
    assert live.chat()[0] == 200


def test_l04_a_client_with_many_requests_does_not_hold_up_another(start: Start) -> None:
    """All requests of this test come from one address, so the queue itself is asked."""

    async def order() -> list[str]:
        queue, served, everybody = AdmissionQueue(1, SERVING), [], asyncio.Event()

        async def one(client: str) -> None:
            async with queue.permit(client):
                served.append(client)
                await everybody.wait()

        tasks = [asyncio.create_task(one("many")) for _ in range(10)]
        tasks.append(asyncio.create_task(one("single")))
        await asyncio.sleep(0)
        everybody.set()
        await asyncio.gather(*tasks)
        assert (queue.busy, queue.waiting) == (0, 0)
        return served

    assert asyncio.run(order()).index("single") <= 2


def test_l06_a_full_line_refuses_at_once_and_answers_all_it_took(start: Start) -> None:
    live = start(step_s=0.005, limits={"waiting": 8, "waiting_per_client": 8})
    live.chat()
    codes: list[int] = []
    retry: list[str] = []

    def ask() -> None:
        code, headers, _ = live.chat(max_tokens=20)
        codes.append(code)
        retry.append(headers.get("retry-after", ""))

    threads = [threading.Thread(target=ask) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(codes) == {200, 429}
    assert codes.count(200) >= 12
    assert all(bool(again) == (code == 429) for code, again in zip(codes, retry, strict=True))


@pytest.mark.parametrize(("held_s", "again"), [(0.0, 1), (2.0, 4), (1e6, 300)])
def test_who_is_refused_is_told_when_the_line_will_have_passed(held_s: float, again: int) -> None:
    async def refused() -> BusyError:
        queue = AdmissionQueue(2, replace(SERVING, waiting=4))
        clock = asyncio.get_running_loop()
        now = 100.0
        clock.time = lambda: now  # type: ignore[method-assign]
        async with queue.permit("one"):
            now += held_s
        leave = asyncio.Event()

        async def stay() -> None:
            async with queue.permit("one"):
                await leave.wait()

        tasks = [asyncio.create_task(stay()) for _ in range(6)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError) as caught:
            async with queue.permit("one"):
                pass
        leave.set()
        await asyncio.gather(*tasks)
        return caught.value

    assert asyncio.run(refused()).facts["retry_after"] == str(again)


def test_two_requests_at_once_give_the_text_of_each_alone(start: Start) -> None:
    live = start(step_s=0.001)
    alone = [live.chat(seed=i, max_tokens=30)[2]["choices"][0] for i in range(6)]
    together: dict[int, object] = {}

    def ask(seed: int) -> None:
        together[seed] = live.chat(seed=seed, max_tokens=30)[2]["choices"][0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(6)] == alone


def test_an_answer_that_takes_too_long_ends_with_what_it_has(start: Start) -> None:
    live = start(step_s=0.01, limits={"request_timeout": 100.0})
    live.ask("POST", "/api/v1/models/beta/load", {})
    (talker,) = live.loader.talkers
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(live.chat, max_tokens=3000)
        assert until(lambda: talker.engine.running and len(talker.engine.running[0].tokens) > 100)
        live.forward(100)
        code, _, answer = asked.result()
    assert code == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    assert 1 <= answer["usage"]["completion_tokens"] < 3000


def test_an_answer_that_has_not_begun_in_time_is_a_timeout(start: Start) -> None:
    live = start(limits={"request_timeout": 100.0})
    live.ask("POST", "/api/v1/models/beta/load", {})
    (talker,) = live.loader.talkers
    talker.runner.go.clear()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(live.chat)
        assert until(lambda: talker.runner.steps)
        live.forward(100)
        talker.runner.go.set()
        assert asked.result()[0] == 504


@pytest.mark.parametrize("prompts", ["Hello", ["Hello", "Hi", "Ho", "Ha", "He"]])
def test_an_answer_that_is_still_in_line_at_its_end_is_a_timeout_then(start: Start, prompts: object) -> None:
    live = start(step_s=0.02, limits={"ole_s": 0.5})
    live.chat()
    (talker,) = live.loader.talkers
    running = [Raw(live.port).post("/v1/chat/completions", body(stream=True)) for _ in range(4)]
    assert until(lambda: len(talker.engine.running) == 4)
    seen = len(talker.seen)
    code, _, answer = live.ask("POST", "/v1/completions", {"prompt": prompts, "max_tokens": 5}, {"X-Ole-Client": "1"})
    assert (code, answer["error"]["code"]) == (504, "timeout")
    assert (len(talker.engine.running), len(talker.seen)) == (4, seen)  # the late request never reached the engine
    loaded = live.app.models.loaded[0]
    assert (loaded.admission.waiting, loaded.admission.busy, loaded.leases) == (0, 4, 4)
    for raw in running:
        raw.close()
    assert until(lambda: talker.idle and loaded.leases == 0)
    assert live.chat()[0] == 200


def test_an_answer_whose_model_is_still_loading_at_its_end_is_a_timeout_then(start: Start) -> None:
    live = start(limits={"request_timeout": 100.0})
    live.loader.go.clear()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(live.chat)
        assert until(lambda: live.loader.begun)
        live.forward(100)
        assert asked.result()[0] == 504
    live.loader.go.set()
    assert until(lambda: live.app.models.loaded)  # the model is loaded all the same, for the next request
    assert live.chat()[0] == 200


def test_a_silent_stream_is_kept_alive_by_comments(start: Start) -> None:
    live = start(step_s=0.01, limits={"comment_s": 100.0})
    live.chat()
    (talker,) = live.loader.talkers
    raw = Raw(live.port).post("/v1/chat/completions", body(stream=True, max_tokens=300))
    data = raw.read(500)
    assert b":\n\n" not in data
    talker.runner.go.clear()
    while b":\n\n" not in data:
        live.forward(100)
        data += raw.read()
    talker.runner.go.set()
    while b"[DONE]" not in data:
        data += raw.read()
    assert status(data) == 200


def test_f12_the_end_lets_what_runs_finish_and_sends_home_what_waits(start: Start) -> None:
    live: Live = start(step_s=0.01)
    live.chat()
    running = [Raw(live.port).post("/v1/chat/completions", body(stream=True, max_tokens=60)) for _ in range(4)]
    heads = [raw.read(100) for raw in running]
    waiting = Raw(live.port).post("/v1/chat/completions", body(max_tokens=5))
    assert until(lambda: live.app.models.loaded[0].admission.waiting == 1)
    keeps, ready = Raw(live.port), Raw(live.port)
    live.background.stop()
    assert until(lambda: live.app.state.draining)
    assert status(waiting.read()) == 503
    answer = keeps.post("/v1/chat/completions", body()).read()
    assert status(answer) == 503
    assert b"retry-after" in answer
    answer = ready.send(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read()
    assert status(answer) == 503
    ends = [head + raw.rest() for head, raw in zip(heads, running, strict=True)]
    assert all(b"[DONE]" in end for end in ends)
    assert until(lambda: live.loader.talkers[0].closed)
