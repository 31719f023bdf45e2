"""What a gateway costs: its CPU time for each token, and how much later tokens come through it than from the replica.

    python -m tests.measure.gateway

A replica with a small real model, whose steps are slowed down to 20 ms, answers 16 streams: 800 tokens a second.
It notes when it has made each piece of text, and the reader when each came: what lies between is the delay. The same
streams are read from the replica itself and through the gateway, in turns. Then short requests at full speed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.server.fleets import talker
from tests.server.process import environ
from tests.server.stand_in import until

STEP_S = 0.02
STREAMS = 16
TOKENS = 150
ROUNDS = 3
SHORT, IN_FLIGHT = 600, 32
TICK = os.sysconf("SC_CLK_TCK")


class Child:
    """A gateway, or a replica, in a process of its own."""

    def __init__(self, home: Path, *words: str) -> None:
        command = [sys.executable, "-m", "tests.measure.gateway", *words]
        self.process = subprocess.Popen(command, env=environ(home, home), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.line())

    def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, what: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(what.encode() + b"\n")
        self.process.stdin.flush()
        return self.line()

    def cpu_s(self) -> float:
        """CPU seconds of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK


def child(role: str, model: str, gateway: str) -> None:
    """The other process: prints its port, then answers lines: `pace`, `free`, `times`, `replicas`."""
    from tests.server.background import Background
    from woolly.config import Settings, read_config
    from woolly.engine.answer import AnswerState
    from woolly.fleet.gateway import build_gateway
    from woolly.fleet.members import Fleet
    from woolly.fleet.replica import build_replica
    from woolly.llm.llm import LLM

    config = read_config(threads=1, disk_bytes=0)
    fleet = Fleet("", insecure=False)
    if role == "gateway":
        app = build_gateway(Settings(ports=(0,), log_level="error"), config, fleet)
    else:
        app = build_replica(Settings(ports=(0,), log_level="error", models=(Path(model),), join=(gateway,)), config)
    sent: dict[int, list[float]] = {}
    send, pace = AnswerState._send, 0.0

    def noted(self: AnswerState, text: str) -> None:
        sent.setdefault(self.seed, []).append(time.monotonic())
        send(self, text)

    AnswerState._send = noted  # type: ignore[method-assign]
    with Background(app) as background:
        assert role == "gateway" or until(lambda: app.models.loaded, 60)
        print(background.port, flush=True)
        if role == "replica":
            llm = app.models.loaded[0].model
            assert isinstance(llm, LLM)
            run = llm.engine.runner.run

            def slow(size: Any) -> Any:
                begun = time.perf_counter()
                outputs = run(size)
                time.sleep(max(begun + pace - time.perf_counter(), 0.0))
                return outputs

            llm.engine.runner.run = slow  # type: ignore[method-assign]
        for line in sys.stdin:
            what: Any = None
            if line.strip() in ("pace", "free"):
                pace = STEP_S if line.strip() == "pace" else 0.0
            elif line.strip() == "times":
                what, sent = sent, {}
            else:
                what = len(fleet.replicas) if app.models.loaded else 0
            print(json.dumps(what), flush=True)


async def read(port: int, seed: int, tokens: int) -> list[float]:
    """When each frame of a stream came."""
    body = {"prompt": f"the an and {seed}", "seed": seed, "temperature": 1.0, "max_tokens": tokens, "stream": True}
    body |= {"logit_bias": {"270": -100, "272": -100}}  # no end before the last token
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + data)
    came = []
    async for line in reader:
        if line.startswith(b"data: {"):
            came.append(time.monotonic())
    writer.close()
    return came


async def streams(port: int, first: int) -> dict[int, list[float]]:
    seeds = range(first, first + STREAMS)
    return dict(zip(seeds, await asyncio.gather(*(read(port, seed, TOKENS) for seed in seeds)), strict=True))


async def short(port: int) -> float:
    """Requests a second, of one token each."""
    left = iter(range(SHORT))
    begun = time.monotonic()

    async def worker() -> None:
        for seed in left:
            await read(port, seed, 1)

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return SHORT / (time.monotonic() - begun)


def delays(came: dict[int, list[float]], sent: dict[str, list[float]]) -> list[float]:
    """Seconds from the piece of text to its frame, of every piece."""
    return [there - here for seed, row in came.items() for here, there in zip(sent[str(seed)], row, strict=False)]


def measure(home: Path) -> None:
    model = talker(home, layers=2, width=64)
    gateway = Child(home, "--role", "gateway")
    replica = Child(home, "--role", "replica", "--model", str(model), "--gateway", f"http://127.0.0.1:{gateway.port}")
    try:
        assert until(lambda: gateway.ask("replicas"), 20)
        ways = {"replica": replica.port, "gateway": gateway.port}
        delays_of: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, float] = dict.fromkeys(("replica alone", "replica behind", "gateway"), 0.0)
        replica.ask("pace")
        asyncio.run(streams(gateway.port, 1))
        replica.ask("times")
        for number in range(ROUNDS):
            for way, port in ways.items():
                before = replica.cpu_s(), gateway.cpu_s()
                came = asyncio.run(streams(port, 1000 * number + 100))
                cpu["replica alone" if way == "replica" else "replica behind"] += replica.cpu_s() - before[0]
                cpu["gateway"] += gateway.cpu_s() - before[1] if way == "gateway" else 0.0
                delays_of[way] += delays(came, replica.ask("times"))
        replica.ask("free")
        rates = {way: asyncio.run(short(port)) for way, port in ways.items()}
    finally:
        for one in (replica, gateway):
            one.process.kill()
            one.process.wait()
    tokens = ROUNDS * STREAMS * TOKENS
    for what, seconds in cpu.items():
        print(f"CPU for each token, {what:15} {seconds / tokens * 1e6:6.0f} us")
    for way, row in delays_of.items():
        cuts = statistics.quantiles(row, n=100)
        print(f"delay of a token, {way:8} p50 {cuts[49] * 1e3:6.2f} ms  p99 {cuts[98] * 1e3:6.2f} ms")
    for way, rate in rates.items():
        print(f"short requests, {way:8} {rate:6.0f} a second, {IN_FLIGHT} in flight")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.gateway", description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=("gateway", "replica"), help=argparse.SUPPRESS)
    parser.add_argument("--model", default="", help=argparse.SUPPRESS)
    parser.add_argument("--gateway", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        child(args.role, args.model, args.gateway)
        return
    with tempfile.TemporaryDirectory(prefix="woolly-measure-") as home:
        measure(Path(home))


if __name__ == "__main__":
    main()
