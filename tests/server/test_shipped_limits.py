"""The limits as they are shipped: the limits that other tests shorten hold at their shipped values, from both sides.

The tests that wait begin together, at the first of them: the file takes as long as the longest, `request_timeout`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import select
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Live, Start, starting
from tests.server.process import Process
from tests.server.raw import Raw, ask, status
from tests.server.stand_in import until
from woolly.config.serving import SERVING
from woolly.server.http.protocol import Connection

pytestmark = pytest.mark.soak

MARGIN = 8.0  # seconds that a busy machine may add
EARLY = 2.0  # seconds before a limit at which tests check that it has not acted yet
PATIENCE = SERVING.request_timeout + 60
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
COMPLETE = "/v1/completions"

Begun = dict[str, Future[None]]
WAITS: dict[str, Callable[[Start], None]] = {}


def waits(test: Callable[[Start], None]) -> Callable[[Begun], None]:
    """Register a test that starts with all others of its kind, each in a thread; pytest then gets its result."""
    WAITS[test.__name__] = test

    def stamp(begun: Begun) -> None:
        begun[test.__name__].result()

    return stamp


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begun]:
    chosen = [item.name for item in request.session.items if item.name in WAITS]
    with starting(folder, tmp_path_factory.mktemp("home")) as start, ThreadPoolExecutor(len(chosen)) as pool:
        yield {name: pool.submit(WAITS[name], start) for name in chosen}


class Watch:
    """A stopwatch that starts when it is made."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def sleep_until(self, seconds: float) -> None:
        time.sleep(max(seconds - self.seconds, 0))

    def assert_about(self, limit: float, more: float = 0.0) -> None:
        """The limit has acted now: not before its time, and not long after it."""
        assert limit - 0.05 <= self.seconds <= limit + more + MARGIN


def silent(*raws: Raw) -> bool:
    """Whether nothing came to any of these, neither a byte nor an end."""
    poll = select.poll()
    for raw in raws:
        poll.register(raw.sock, select.POLLIN)
    return not poll.poll(0)


def waiting(live: Live) -> Raw:
    return Raw(live.port, timeout=PATIENCE)


def is_well(live: Live) -> bool:
    """Whether a good request succeeds."""
    for talker in live.loader.talkers:
        talker.runner.step_s = 0.0
    return live.ask("GET", "/health")[0] == 200 and live.chat()[0] == 200


def much(**fields: Any) -> dict[str, Any]:
    return {"prompt": "Hi", "max_tokens": 3000, "model": "beta"} | fields


def padded(size: int) -> bytes:
    """A good body of so many bytes."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 1}).encode()
    return body + b" " * (size - len(body))


# Sizes and numbers: the limit itself passes, one more does not


def test_h28_the_headers_of_the_table_pass_and_more_do_not(live: Live) -> None:
    def answer(data: bytes) -> int:
        return status(Raw(live.port).send(data).rest())

    close = b"Connection: close\r\n\r\n"
    fields = SERVING.header_fields - 2
    assert answer(GET + b"X: y\r\n" * fields + close) == 200
    assert answer(GET + b"X: y\r\n" * (fields + 1) + close) == 431

    left = SERVING.headers - len(GET + b"X: \r\n" + close)
    assert answer(GET + b"X: " + b"y" * left + b"\r\n" + close) == 200
    assert (
        answer(GET + b"X: " + b"y" * (left + 32) + b"\r\n" + close) == 431
    )  # the words of the request line are not counted

    path = b"/health?" + b"x" * (SERVING.request_line - len("/health?"))
    assert answer(GET.replace(b"/health", path) + close) == 200
    assert answer(GET.replace(b"/health", path + b"x") + close) == 414
    assert is_well(live)


def test_h20_h21_a_body_of_ten_mebibytes_passes_and_a_byte_more_does_not(live: Live) -> None:
    most = SERVING.max_body_size
    assert most == 10 << 20
    assert live.ask("POST", COMPLETE, padded(most))[0] == 200
    announced = Raw(live.port).send(POST + b"Content-Length: %d\r\n\r\n" % (most + 1)).rest()
    assert status(announced) == 413

    def chunked(size: int) -> int:
        raw = Raw(live.port, timeout=60).send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        data = padded(size)
        for at in range(0, size, 1 << 20):
            piece = data[at : at + (1 << 20)]
            raw.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        return status(raw.read())  # with or without the end of the body: the bytes are counted

    assert chunked(most + 1) == 413
    bytewise = Raw(live.port, timeout=60).send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(ConnectionError):  # the server closes before it has read everything
        bytewise.send(b"1\r\n \r\n" * most)
    assert status(bytewise.rest()) == 400
    raw = Raw(live.port, timeout=60).send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    raw.send(b"%x\r\n%b\r\n0\r\n\r\n" % (most, padded(most)))
    assert status(raw.read()) == 200
    assert is_well(live)


def test_h26_five_hundred_and_twelve_connections_are_held_and_the_next_is_told_so(served: Process) -> None:
    def good() -> bool:
        return served.ask("POST", COMPLETE, {"prompt": "Hi", "max_tokens": 1})[0] == 200

    def descriptors() -> int:
        files = Path(f"/proc/{served.pid}/fd")
        return len(list(files.iterdir())) if files.exists() else 0

    assert good()
    before = descriptors()
    loaded = [Raw(served.port).send(GET + b"\r\n") for _ in range(SERVING.connections)]
    assert {status(raw.answer()) for raw in loaded} == {200}
    for _ in range(88):
        answer = Raw(served.port).rest()
        assert (status(answer), b"retry-after: 1" in answer) == (503, True)
    assert {status(raw.send(GET + b"\r\n").answer()) for raw in loaded} == {200}
    for raw in loaded:
        raw.close()
    assert until(lambda: descriptors() <= before, MARGIN)
    assert until(good, MARGIN)


def test_l06_of_four_hundred_at_once_as_many_wait_as_the_table_says_and_all_of_them_are_answered(start: Start) -> None:
    """Five clients, told apart by their keys: four fill their share of the queue each, and then it is full."""
    keys = [f"the-key-of-client-{number}-is-long-enough" for number in range(5)]
    live = start(step_s=0.2, keys=tuple(hashlib.sha256(key.encode()).digest() for key in keys))
    each = SERVING.waiting_per_client
    assert each * 4 == SERVING.waiting

    def post(key: str, **fields: Any) -> Raw:
        return Raw(live.port, timeout=60).post(COMPLETE, much(**fields), {"X-API-Key": key})

    def refused(key: str) -> bool:
        answer = post(key).read()
        return status(answer) == 429 and b"retry-after: " in answer

    running = [post(keys[4], stream=True) for _ in range(4)]
    assert until(lambda: live.loader.talkers and len(live.loader.talkers[0].engine.running) == 4, MARGIN)
    line, (talker,) = live.app.models.loaded[0].admission, live.loader.talkers
    in_line = [post(keys[0], max_tokens=1) for _ in range(each)]
    assert until(lambda: line.waiting == each, MARGIN)
    assert refused(keys[0])  # its share is used up; those of the others are not
    in_line += [post(key, max_tokens=1) for key in keys[1:4] for _ in range(each)]
    assert until(lambda: line.waiting == SERVING.waiting, MARGIN)
    assert all(refused(keys[number % 5]) for number in range(400 - SERVING.waiting - 4 - 1))
    assert line.waiting == SERVING.waiting
    for raw in running:
        raw.close()
    talker.runner.step_s = 0.0
    assert {status(raw.read()) for raw in in_line} == {200}
    assert until(lambda: talker.idle, MARGIN)
    assert status(post(keys[0], max_tokens=1).read()) == 200


# Times: nothing happens before the limit, and it acts soon after


@waits
def test_h24_slow_headers_are_cut_off_after_ten_seconds_and_others_are_served(start: Start) -> None:
    live, limit = start(), SERVING.header_s
    watch = Watch()
    dumb = waiting(live)
    slow = [waiting(live).send(b"GET /") for _ in range(200)]
    opened = watch.seconds
    while watch.seconds < limit - EARLY:
        for raw in slow:
            raw.send(b"x")  # a byte each second does not buy time
        assert live.ask("GET", "/health")[0] == 200
        time.sleep(1)
    assert silent(dumb, *slow)
    assert {status(raw.rest()) for raw in slow} == {408}
    assert dumb.rest() == b""
    watch.assert_about(limit, opened)
    assert is_well(live)


@waits
def test_h24_the_headers_of_a_second_request_have_ten_seconds_from_their_first_byte(start: Start) -> None:
    live, limit = start(), SERVING.header_s
    raw = waiting(live).send(GET + b"\r\n")
    assert status(raw.answer()) == 200
    time.sleep(limit + EARLY)
    watch = Watch()
    raw.send(b"GET /hea")
    watch.sleep_until(limit - EARLY)
    assert silent(raw)
    assert status(raw.rest()) == 408
    watch.assert_about(limit)
    assert is_well(live)


@waits
def test_h25_a_slow_body_is_cut_off_after_thirty_seconds(start: Start) -> None:
    live, limit = start(), SERVING.body_s
    for head in (b"Content-Length: 1000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        byte = b"1\r\n \r\n" if b"chunked" in head else b" "
        watch = Watch()
        raw = waiting(live).send(POST + head)
        while watch.seconds < limit - EARLY:
            raw.send(byte)
            time.sleep(1)
        assert silent(raw)
        assert status(raw.rest()) == 408
        watch.assert_about(limit)
    assert is_well(live)


@waits
def test_h25_a_large_body_has_a_second_more_for_each_64_kibibytes(start: Start) -> None:
    live, more = start(), 12
    body = padded(more * SERVING.body_rate)
    head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
    watch = Watch()
    good, slow = (waiting(live).send(head + body[:1000]) for _ in range(2))
    watch.sleep_until(SERVING.body_s + more - EARLY)
    assert silent(good, slow)
    assert status(good.send(body[1000:]).read()) == 200
    assert status(slow.rest()) == 408
    watch.assert_about(SERVING.body_s + more)
    assert is_well(live)


@waits
def test_an_idle_connection_is_closed_after_seventy_five_seconds(start: Start) -> None:
    live, limit = start(), SERVING.keep_alive_s
    watch = Watch()
    idle, used = (waiting(live).send(GET + b"\r\n") for _ in range(2))
    assert (status(idle.answer()), status(used.answer())) == (200, 200)
    watch.sleep_until(limit - EARLY)
    assert silent(idle, used)
    again = Watch()
    assert status(used.send(GET + b"\r\n").answer()) == 200  # and its idle time begins anew
    assert idle.rest() == b""
    watch.assert_about(limit)
    again.sleep_until(limit - EARLY)
    assert silent(used)
    assert used.rest() == b""
    again.assert_about(limit)
    assert is_well(live)


def flood(live: Live) -> Raw:
    """A stream to a client with a small buffer; twenty candidates for each token make megabytes in all."""
    raw = Raw(live.port, receive_buffer=2048, timeout=PATIENCE)
    raw.post(COMPLETE, much(stream=True, max_tokens=4000, logprobs=20))
    assert until(lambda: live.loader.talkers and live.loader.talkers[0].gives_way(0.5))
    return raw


@waits
def test_h34_a_client_that_does_not_read_is_dropped_after_thirty_seconds(start: Start) -> None:
    live, limit = start(), SERVING.unread_s
    watch = Watch()
    raw = flood(live)
    (talker,) = live.loader.talkers
    (connection,) = live.background._listener.server_state.connections
    assert isinstance(connection, Connection)
    full = watch.seconds
    while watch.seconds < limit - EARLY:
        assert talker.engine.running
        assert connection.transport.get_write_buffer_size() < 2 * SERVING.unread  # the limit, and one piece more
        assert live.chat()[0] == 200  # others go on
        time.sleep(2)
    assert len(talker.engine.running[0].tokens) < 4000
    assert until(lambda: talker.idle, full + EARLY + limit / 4 + MARGIN)  # checked four times within its time
    watch.assert_about(limit, full + limit / 4)
    assert is_well(live)
    raw.close()


@waits
def test_h34_a_client_that_does_not_read_a_whole_answer_is_dropped_after_thirty_seconds(start: Start) -> None:
    live, limit = start(), SERVING.unread_s
    assert is_well(live)
    connections = live.background._listener.server_state.connections
    assert until(lambda: not connections, MARGIN)
    raw = Raw(live.port, receive_buffer=2048).post(COMPLETE, much(logprobs=20))
    assert until(lambda: any(connection.transport.get_write_buffer_size() for connection in connections))
    watch = Watch()
    watch.sleep_until(limit - EARLY)
    assert connections
    assert until(lambda: not connections, EARLY + limit / 4 + MARGIN)
    watch.assert_about(limit, limit / 4)
    assert is_well(live)
    raw.close()


@waits
def test_h35_a_client_that_reads_slowly_is_waited_for(start: Start) -> None:
    live = start()
    raw, watch = flood(live), Watch()
    (talker,) = live.loader.talkers
    (slow,) = talker.engine.running
    while watch.seconds < 2.5 * SERVING.unread_s:
        assert raw.sock.recv(1024)
        time.sleep(1)
    assert talker.engine.running == [slow]
    assert len(slow.tokens) < 4000
    assert live.chat()[0] == 200
    raw.close()
    assert until(lambda: talker.idle, MARGIN)


@waits
def test_a_stream_is_silent_for_fifteen_seconds_and_no_longer(start: Start) -> None:
    live, limit = start(step_s=SERVING.comment_s + 10), SERVING.comment_s
    raw = waiting(live).post(COMPLETE, {"prompt": "Hi", "max_tokens": 3, "stream": True})
    data, comments = raw.read(), 0
    assert status(data) == 200
    while b"[DONE]" not in data:
        watch = Watch()
        data = raw.read()
        assert data
        if b":\n\n" in data:
            comments += 1
            watch.assert_about(limit)
    assert comments == 2  # between three tokens
    assert is_well(live)


@waits
def test_an_answer_ends_after_three_hundred_seconds_with_what_it_has(start: Start) -> None:
    live, limit, step = start(step_s=1.0), SERVING.request_timeout, 1.0
    watch = Watch()
    unstreamed = waiting(live).post(COMPLETE, much())
    stream = waiting(live).post(COMPLETE, much(stream=True))
    watch.sleep_until(limit - EARLY)
    assert silent(unstreamed)
    (talker,) = live.loader.talkers
    assert len(talker.engine.running) == 2
    answer = unstreamed.answer()
    watch.assert_about(limit, step)
    assert status(answer) == 200
    assert b'"finish_reason":"length"' in answer
    tokens = json.loads(answer.rpartition(b"\r\n\r\n")[2])["usage"]["completion_tokens"]
    assert limit / step / 2 < tokens <= limit / step
    stream.sock.settimeout(MARGIN)
    data = b""
    while b"[DONE]" not in data:
        data += stream.read()
    assert b'"finish_reason":"length"' in data
    assert until(lambda: talker.idle, MARGIN)
    assert is_well(live)


@waits
def test_an_answer_that_has_not_begun_after_three_hundred_seconds_is_a_timeout(start: Start) -> None:
    live, limit, step = start(step_s=2.0), SERVING.request_timeout, 2.0
    watch = Watch()
    raw = waiting(live).post(COMPLETE, much(prompt="x" * 3000, max_tokens=5))  # 188 steps
    watch.sleep_until(limit - EARLY)
    assert silent(raw)
    assert status(raw.read()) == 504
    watch.assert_about(limit, step)
    assert until(lambda: live.loader.talkers[0].idle, MARGIN)
    assert is_well(live)


@waits
def test_ole_gets_what_there_is_after_a_hundred_and_ten_seconds(start: Start) -> None:
    live, limit, step = start(step_s=0.5), SERVING.ole_s, 0.5
    watch = Watch()
    code, _, answer = ask(live.port, "POST", COMPLETE, much(), {"X-Ole-Client": "1"}, PATIENCE)
    watch.assert_about(limit, step)
    assert watch.seconds < 120  # when it gives up
    assert (code, answer["choices"][0]["finish_reason"]) == (200, "length")
    assert limit / step / 2 < answer["usage"]["completion_tokens"] <= limit / step
    assert is_well(live)


@waits
def test_ole_in_line_is_told_after_a_hundred_and_ten_seconds(start: Start) -> None:
    live, limit = start(step_s=0.5), SERVING.ole_s
    running = [waiting(live).post(COMPLETE, much(stream=True)) for _ in range(4)]
    assert until(lambda: live.loader.talkers and len(live.loader.talkers[0].engine.running) == 4, MARGIN)
    (talker,) = live.loader.talkers
    watch = Watch()
    code = ask(live.port, "POST", COMPLETE, much(), {"X-Ole-Client": "1"}, PATIENCE)[0]
    watch.assert_about(limit)
    assert watch.seconds < 120
    assert code == 504
    assert len(talker.engine.running) == 4
    assert live.app.models.loaded[0].admission.waiting == 0
    for raw in running:
        raw.close()
    assert until(lambda: talker.idle, MARGIN)
    assert is_well(live)


@waits
def test_f12_the_end_waits_thirty_seconds_for_what_runs(start: Start) -> None:
    live, limit = start(step_s=0.5), SERVING.drain_s
    raw = waiting(live).post(COMPLETE, much(stream=True))
    data = raw.read()
    watch = Watch()
    live.background.stop()
    while watch.seconds < limit - EARLY:
        data = raw.read()
        assert b'"text":' in data
    data += raw.rest()
    watch.assert_about(limit, 1.0)
    assert b"[DONE]" not in data
    assert is_well(start(port=live.port))
