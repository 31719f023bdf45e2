"""Many clients at once: some turns of each in `make test`, and in `make soak` as many as SOAK_SECONDS allows.

Speed is tested in `make soak` alone, with the model in the wheel: elsewhere the machine has other work.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.server.process import Process, environ
from tests.server.raw import Raw, status
from tests.server.stand_in import until
from tests.server.test_cycles import descriptors, resident, threads
from woolly import store
from woolly.errors import WoollyError

SOAK_S = float(os.environ.get("SOAK_SECONDS", "600"))
TURNS = 4  # turns of each client in `make test`
ROUNDS = 12  # rounds of a soak; after each, memory is measured with the server at rest
MB = 1 << 20
COMPLETE = "/v1/completions"
POOL = ("--cache", str(8 * MB), "--disk-bytes", str(32 * MB), "--context", "2048", "--log-level", "warning")
WORDS = tuple(f"sheep{number}" for number in range(500))  # texts are new but words repeat: a tokenizer caches 10,000
ALLOWED = 12  # threads that the pools start when they first need them
KEYS = ("the-key-of-the-heavy-one-is-long", "the-key-of-the-light-one-is-long")
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@pytest.fixture
def crowded(talkers: Path, tmp_path: Path) -> Iterator[Process]:
    """A server whose cache is small enough to be full at once."""
    with Process(environ(tmp_path, talkers), *POOL) as process:
        assert process.ask("POST", COMPLETE, asking("warm", 4))[0] == 200
        yield process


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[Process]:
    """A server with the model of the wheel."""
    try:
        path = store.resolve("smollm2")
    except WoollyError:
        pytest.skip("the model of the wheel is not here")
    keys = [word for key in KEYS for word in ("--api-key", key)]
    with Process(environ(tmp_path, tmp_path), str(path), *keys, "--disk-bytes", "0", "--log-level", "error") as process:
        assert process.ask("POST", COMPLETE, asking("warm", 4), {"X-API-Key": KEYS[0]})[0] == 200
        yield process


def asking(prompt: str, tokens: int, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": 7} | fields


class Streamed:
    """One answer as it comes: its text, and when each piece of it came."""

    def __init__(self, port: int, body: dict[str, Any], leave_s: float | None = None, key: str = "") -> None:
        begun = time.perf_counter()
        self.text, self.times, self.status, self.complete = "", [], 0, False
        raw = Raw(port, timeout=120).post(COMPLETE, body | {"stream": True}, {"X-API-Key": key} if key else None)
        data = b""
        try:
            while not self.complete and (leave_s is None or time.perf_counter() - begun < leave_s):
                piece = raw.read()
                if not piece:
                    break
                self.times.append(time.perf_counter() - begun)
                data += piece
                self.complete = b"data: [DONE]" in data
        finally:
            raw.close()
        self.status = status(data) if data else 0
        frames = re.findall(rb"^data: (\{.*\})\r?$", data, re.MULTILINE)
        self.text = "".join(row["text"] for frame in frames for row in json.loads(frame).get("choices", ()))


def together(count: int, work: Callable[[int], None]) -> None:
    """Run so many clients at once; raises the first error of any of them."""
    wrong: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            wrong.append(error)

    clients = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if wrong:
        raise wrong[0]


def turns(seconds: float) -> Iterator[int]:
    """The turns of a client: at least TURNS, and more until so many seconds are over."""
    end, number = time.perf_counter() + seconds, 0
    while number < TURNS or time.perf_counter() < end:
        yield number
        number += 1


def gauge(process: Process, name: str) -> float:
    lines = process.ask("GET", "/metrics")[2].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"woolly:{name}"))


def quiet(process: Process) -> bool:
    """Whether nothing runs, nothing waits, and every page is free or only remembered."""
    return not any(gauge(process, name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage"))


# L01


@pytest.mark.parametrize("clients", [32, 64])
def test_l01_as_many_streams_at_once_are_answered_as_each_alone(served: Process, clients: int) -> None:
    prompts = [f"{number} sheep" for number in range(clients)]
    alone = [Streamed(served.port, asking(prompt, 12)).text for prompt in prompts]
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        answer = Streamed(served.port, asking(prompts[number], 12))
        assert answer.complete and answer.status == 200
        texts[number] = answer.text

    together(clients, ask)
    assert [texts[number] for number in range(clients)] == alone


@pytest.mark.soak
def test_l01_more_clients_get_more_tokens(shipped: Process) -> None:
    rates: dict[int, float] = {}
    for clients in (1, 2, 4, 8, 16, 32, 64):
        begun, tokens, lock = time.perf_counter(), [0], threading.Lock()
        end = begun + SOAK_S / 30

        def ask(number: int, end: float = end, tokens: list[int] = tokens, lock: threading.Lock = lock) -> None:
            while time.perf_counter() < end:
                answer = Streamed(shipped.port, asking(f"{number} {time.time()}", 64), key=KEYS[number % 2])
                assert answer.complete and answer.status == 200
                with lock:
                    tokens[0] += 64

        together(clients, ask)
        rates[clients] = tokens[0] / (time.perf_counter() - begun)
    print("tokens/s by clients:", {clients: round(rate) for clients, rate in rates.items()})
    assert rates[8] >= 1.5 * rates[1]
    assert min(rates[clients] for clients in (8, 16, 32, 64)) >= rates[4]


# L02


def storm(process: Process, seconds: float = 0.0) -> None:
    """Requests that are given up after a moment, and one that stays."""
    body = asking("the one that stays", 64)
    alone = Streamed(process.port, body).text
    assert until(lambda: quiet(process))
    open_files, running = descriptors(process), threads(process)

    def ask(number: int) -> None:
        dice = random.Random(number)
        for _ in turns(seconds):
            if number:
                Streamed(process.port, asking(f"{dice.random()}", 200), leave_s=dice.uniform(0, 0.2))
            else:
                assert Streamed(process.port, body).text == alone

    together(32, ask)
    assert until(lambda: quiet(process), 30)
    assert until(lambda: descriptors(process) <= open_files, 30)
    assert until(lambda: threads(process) <= running + ALLOWED, 30)


@linux
def test_l02_a_storm_of_cancels_leaves_nothing_behind_and_changes_no_other_text(crowded: Process) -> None:
    storm(crowded)


@linux
@pytest.mark.soak
def test_l02_a_storm_of_cancels_for_long(crowded: Process) -> None:
    storm(crowded, SOAK_S / 2)


# L03 and L05


@pytest.mark.soak
def test_l03_a_long_prompt_does_not_hold_up_the_streams_beside_it(shipped: Process) -> None:
    gaps: list[float] = []
    over = threading.Event()

    def decode(number: int) -> None:
        while not over.is_set():
            times = Streamed(shipped.port, asking(f"{number} {time.time()}", 400), key=KEYS[0]).times
            gaps.extend(later - sooner for sooner, later in pairwise(times))

    def long(_: int) -> None:
        try:
            for number in range(3):
                text = f"{number} " + "once upon a time there was a sheep " * 900  # nearly the whole context
                answer = Streamed(shipped.port, asking(text, 4), key=KEYS[1])
                assert answer.status == 200
        finally:
            over.set()

    together(9, lambda number: decode(number) if number < 8 else long(number))
    p99 = statistics.quantiles(gaps, n=100)[98]
    print(f"gap between pieces beside a long prompt: p99 {p99 * 1e3:.0f} ms, longest {max(gaps) * 1e3:.0f} ms")
    assert p99 <= 0.25


@pytest.mark.soak
def test_l05_a_heavy_client_does_not_slow_a_light_one_down(shipped: Process) -> None:
    def first(number: int) -> float:
        return Streamed(shipped.port, asking(f"{number} {time.time()} light", 8), key=KEYS[1]).times[0]

    alone = [first(number) for number in range(30)]
    over, with_others = threading.Event(), []

    def ask(number: int) -> None:
        if number:
            while not over.is_set():
                Streamed(shipped.port, asking(f"{number} {time.time()} " + "wool " * 100, 64), key=KEYS[0])
        else:
            try:
                time.sleep(2)
                end = time.perf_counter() + SOAK_S / 10
                while time.perf_counter() < end:
                    with_others.append(first(len(with_others)))
            finally:
                over.set()

    together(33, ask)
    before, after = (statistics.quantiles(rows, n=20)[18] for rows in (alone, with_others))
    print(f"first token of a light client, p95: alone {before * 1e3:.0f} ms, beside 32 heavy ones {after * 1e3:.0f} ms")
    assert after <= 2 * before + 10 * 0.2  # a request waits for a place, and for steps of the running answers


# L07 and L08


def soak(process: Process, clients: int, seconds: float = 0.0, seed: int = 0) -> None:
    """Clients of all kinds, some of which leave; each seed has its own texts."""
    schema = {"type": "object", "properties": {"a": {"enum": ["sheep", "wool"]}}, "required": ["a"]}

    def ask(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        for _ in turns(seconds):
            prompt, tokens = " ".join(dice.choices(WORDS, k=dice.randint(1, 80))), dice.randint(1, 60)
            fields = {} if dice.random() < 0.8 else {"response_format": {"type": "json_schema", "json_schema": {
                "name": "a", "schema": schema}}}  # fmt: skip
            leave_s = dice.uniform(0, 0.5) if dice.random() < 0.3 else None
            answer = Streamed(process.port, asking(prompt, tokens, seed=dice.randrange(99), **fields), leave_s)
            assert answer.status in (0, 200, 429) and (answer.complete or leave_s is not None or answer.status == 429)

    together(clients, ask)


def at_rest(process: Process) -> int:
    """The resident set once nothing runs and the pages that wait for the disk, up to 32 MB of them, are written."""
    assert until(lambda: quiet(process), 30)
    sizes = [resident(process)]
    while len(sizes) < 3 or sizes[-3] > sizes[-1]:
        time.sleep(1)
        sizes.append(resident(process))
    return sizes[-1]


def growth(sizes: list[int]) -> float:
    """Megabytes between the first and the last third of the rounds after the warm-up, which is a quarter of all."""
    rows = sizes[len(sizes) // 4 :]
    third = max(len(rows) // 3, 1)
    return (statistics.median(rows[-third:]) - statistics.median(rows[:third])) / MB


@linux
def test_l07_thirty_two_clients_who_come_and_go_leave_every_page_free(crowded: Process) -> None:
    open_files, running = descriptors(crowded), threads(crowded)
    soak(crowded, 32)
    assert until(lambda: quiet(crowded), 30)
    assert until(lambda: descriptors(crowded) <= open_files + 4, 30)  # four more are for the two child processes
    assert threads(crowded) <= running + ALLOWED


@linux
@pytest.mark.soak
def test_l07_for_long_the_resident_set_is_flat(crowded: Process) -> None:
    sizes: list[int] = []
    open_files = running = 0
    for seed in range(ROUNDS):
        soak(crowded, 32, SOAK_S / ROUNDS, seed)
        sizes.append(at_rest(crowded))
        open_files, running = open_files or descriptors(crowded), running or threads(crowded)
    print(f"{SOAK_S:.0f} s, 32 clients: {', '.join(f'{size / MB:.1f}' for size in sizes)} MB at rest, "
          f"grown by {growth(sizes):+.2f} MB after warm-up")  # fmt: skip
    assert until(lambda: descriptors(crowded) <= open_files, 30)
    assert threads(crowded) <= running + ALLOWED
    assert growth(sizes) < 4
    code, errors = crowded.end()
    assert (code, errors) == (0, "")


@linux
@pytest.mark.soak
def test_l08_many_requests_of_one_token_take_as_long_at_the_end_as_at_the_beginning(crowded: Process) -> None:
    times: list[float] = []
    end = time.perf_counter() + SOAK_S / 5
    before = None
    while time.perf_counter() < end or len(times) < 4000:
        begun = time.perf_counter()
        assert crowded.ask("POST", COMPLETE, asking(f"{len(times)}", 1))[0] == 200
        times.append(time.perf_counter() - begun)
        if len(times) == 1000:
            before = resident(crowded)
    first, last = statistics.median(times[1000:2000]), statistics.median(times[-1000:])
    print(f"{len(times):,} requests of one token: {first * 1e3:.2f} ms each at first, {last * 1e3:.2f} ms at last")
    assert last <= 1.1 * first
    assert before is not None and resident(crowded) - before < 8 * MB


# L14


def connections(process: Process, seconds: float = 0.0) -> int:
    """Open and close connections, with a request or without; returns how many there were."""
    open_files, opened = descriptors(process), [0] * 16

    def ask(number: int) -> None:
        for _ in turns(seconds):
            for request in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
                raw = Raw(process.port).send(request)
                assert not request or status(raw.read()) in (200, 503)
                raw.close()
                opened[number] += 1

    together(16, ask)
    assert until(lambda: descriptors(process) <= open_files, 30)
    assert process.ask("GET", "/health")[0] == 200
    return sum(opened)


@linux
def test_l14_connections_that_come_and_go_leave_no_descriptor_behind(crowded: Process) -> None:
    assert connections(crowded) == 2 * TURNS * 16


@linux
@pytest.mark.soak
def test_l14_connections_that_come_and_go_for_a_minute(crowded: Process) -> None:
    print(f"{connections(crowded, min(SOAK_S, 60.0)):,} connections in a minute")
