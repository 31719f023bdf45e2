"""Servers with a real model in a time of their own, bad in one way if told so: their figures are the same anywhere.

A server is asked over connections that only exist here, and answers OpenAI's completions and chat as a good one does;
each of BAD differs from that in one thing alone. Time passes where a server says so and where a user pauses, never by
itself, so that no gate of speed depends on the machine that runs the tests. A process uses what its answers cost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlsplit

from woolly.bench.state import State
from woolly.io.http import Terms
from woolly.llm.llm import LLM
from woolly.request import End, Request, Sampling, Start, Text
from woolly.validate.process import ProcessUsage

BAD = ("canned", "at_the_end", "invented", "slow", "leaking")
KINDS = ("good", *BAD)
CANNED = " the river runs to the sea and the sea is wide and the wind is on the water and the day is long" * 40
PROMPT_S = 0.01  # until the first piece
PACE_S, SLOW_S = 0.003, 0.12  # between two pieces
OWN_SIZE = 50_000_000  # bytes of a process that has not answered yet
LEAK = 2_000_000  # bytes of each answer
FIRST_PORT = 1  # nobody listens there: a connection that is no simulated one fails


class Clock:
    """Stands in for the module `time`: time passes when somebody sleeps, for all alike."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._lock = threading.RLock()
        self._looks: list[_Look] = []

    def perf_counter(self) -> float:
        return self._now_s

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        with self._lock:
            end_s = self._now_s + seconds
            while due := [one for one in self._looks if one.at_s <= end_s]:
                first = min(due, key=lambda one: one.at_s)
                self._now_s = first.at_s
                first.at_s += first.interval_s
                first.look()
            self._now_s = end_s

    @contextmanager
    def repeated(self, interval_s: float, look: Callable[[], bool]) -> Iterator[None]:
        """As `process.repeated`, by this clock."""
        one = _Look(self._now_s + interval_s, interval_s, look)
        with self._lock:
            look()
            self._looks.append(one)
        try:
            yield
        finally:
            with self._lock:
                self._looks.remove(one)


class _Look:
    def __init__(self, at_s: float, interval_s: float, look: Callable[[], bool]) -> None:
        self.at_s, self.interval_s, self.look = at_s, interval_s, look


class Server:
    """One of these servers. Its process has its port as its number."""

    def __init__(self, kind: str, port: int, llm: LLM, name: str, clock: Clock) -> None:
        self.kind, self.port, self.llm, self.name, self.clock = kind, port, llm, name, clock
        self.cpu_s, self.leaked = 0.0, 0
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def usage(self) -> ProcessUsage:
        return ProcessUsage(self.clock.monotonic(), OWN_SIZE + self.leaked, self.cpu_s, 1, 1)

    def reply(self, method: str, path: str, data: bytes | None) -> Reply:
        self.asked.append(f"{method} {path}")
        if method == "GET":
            return Reply(200, iter([json.dumps(self.facts(path)).encode()]))
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return Reply(404, iter([b'{"error": "no such route"}']))
        assert data is not None
        return Reply(200, self.stream(json.loads(data)))

    def facts(self, path: str) -> dict[str, Any]:
        if path == "/v1/models":
            return {"data": [{"id": self.name}]}
        if path == "/api/v1/models":
            return {"success": True, "data": [{"name": self.name}]}
        return {"status": "ready" if path.endswith("/ready") else "ok"}

    def stream(self, body: dict[str, Any]) -> Iterator[bytes]:
        if self.kind == "leaking":
            self.leaked += LEAK
        self.clock.sleep(PROMPT_S)
        events = self.events(body)
        for event in list(events) if self.kind == "at_the_end" else events:
            yield b"data: " + json.dumps(event).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    def events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        chat = "messages" in body
        for text, usage in self.canned(body) if self.kind == "canned" else self.answer(body):
            if usage is None:
                yield {"choices": [{"delta": {"content": text}} if chat else {"text": text}]}
                self.cpu_s += PACE_S
                self.clock.sleep(SLOW_S if self.kind == "slow" else PACE_S)
                continue
            prompt, tokens, cached, reason = usage
            if self.kind == "invented":
                prompt, tokens = prompt + 3, round(tokens * 1.3) + 1
            yield {"choices": [{"delta": {}, "finish_reason": reason, "text": ""}]}
            details = {"cached_tokens": cached}
            yield {
                "choices": [],
                "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "prompt_tokens_details": details},
            }

    def answer(self, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        bias = {int(token): value for token, value in body.get("logit_bias", {}).items()}
        sampling = Sampling(temperature=body.get("temperature", 1.0), seed=body.get("seed"), logit_bias=bias)
        what: Any = {"messages": tuple(body["messages"])} if "messages" in body else {"prompt": body["prompt"]}
        cached = 0
        for event in self.llm.submit(Request(**what, sampling=sampling, max_tokens=body.get("max_tokens", 16))):
            if isinstance(event, Start):
                cached = event.cached_tokens
            elif isinstance(event, Text):
                yield event.text, None
            elif isinstance(event, End):
                yield "", (event.usage.prompt_tokens, event.usage.completion_tokens, cached, event.reason)

    def canned(self, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Text that ignores the prompt, with right counts, in small pieces at a believable pace."""
        asked = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        ids = self.llm.tokenize(CANNED, special=False, bos=False)[: body.get("max_tokens", 16)]
        for token in ids:
            yield self.llm.detokenize([token]), None
        yield "", (len(self.llm.tokenize(asked)), len(ids), 0, "length")


class Reply:
    """Of `io.http.Response` what the client uses."""

    def __init__(self, status: int, pieces: Iterator[bytes]) -> None:
        self.status, self._pieces = status, pieces

    def read(self, size: int) -> bytes:
        return b"".join(self._pieces)[:size]

    def read1(self, size: int) -> bytes:
        return next(self._pieces, b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Simulation:
    """Servers of every kind, one clock, and what stands in for the machine: calm, and always the same."""

    def __init__(self, llm: LLM, name: str) -> None:
        self.clock = Clock()
        servers = [Server(kind, FIRST_PORT + at, llm, name, self.clock) for at, kind in enumerate(KINDS)]
        self.servers = {server.kind: server for server in servers}
        self._by_port = {server.port: server for server in servers}

    def ask(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], *, terms: Terms) -> Reply:
        """As `io.http.ask`."""
        where = urlsplit(url)
        path = where.path + (f"?{where.query}" if where.query else "")
        return self._by_port[where.port or 0].reply(method, path, body)

    def usage_of(self, pid: int) -> ProcessUsage:
        return self._by_port[pid].usage()


class Calm:
    """As `bench.state.Watch`, where nobody else works."""

    def __init__(self, ours: object = ()) -> None:
        pass

    def begin(self) -> None:
        pass

    def foreign(self) -> float:
        return 0.0


class Even:
    """As `Yardstick`, of a machine that always gives the same."""

    def __init__(self, nbytes: int, threads: int) -> None:
        self.threads = threads

    def state(self) -> State:
        return State(barrier_ns=50.0, read_gb_s=10.0)

    def read_gb_s(self, threads: int) -> float:
        return 10.0

    def memory_s(self) -> float:
        return 0.02
