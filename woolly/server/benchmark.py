"""A benchmark of the loaded model: one at a time, for as long as a request may take, and none without a client."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from woolly.errors import BusyError, NativeError
from woolly.server.models import Held

if TYPE_CHECKING:
    from woolly.bench.live import Measured

TESTS = ("token_generation", "matrix_multiplication", "memory_allocation")
ITERATIONS, MOST = 100, 10_000


class Benchmark:
    """`last` holds the last result of each test."""

    def __init__(self) -> None:
        self.running = False
        self.last: dict[str, dict[str, Any]] = {}

    async def run(self, held: Held, test: str, iterations: int, timeout_s: float) -> dict[str, Any]:
        if self.running:
            raise BusyError("a benchmark is running", suggestion="try again when it has ended", code="conflict")
        self.running = True
        gone, end = threading.Event(), time.monotonic() + timeout_s

        def check() -> None:
            if gone.is_set():
                raise BusyError("nobody waits for the benchmark any more")
            if time.monotonic() > end:
                raise NativeError("the benchmark took too long", suggestion="ask for fewer iterations", code="timeout")

        work = asyncio.create_task(asyncio.to_thread(_measure, held, test, iterations, check))
        work.add_done_callback(self._done)
        try:
            measured = await asyncio.shield(work)
        finally:
            gone.set()  # who goes away leaves no work behind; the next may begin when it has ended
        self.last[test] = _figures(test, measured)
        return self.last[test]

    def _done(self, work: asyncio.Task[Any]) -> None:
        self.running = False
        if not work.cancelled():
            work.exception()  # seen: nobody may be waiting any more


def _measure(held: Held, test: str, iterations: int, check: Any) -> Measured:
    from woolly.bench.live import TESTS as MEASURED  # NumPy comes with it, and the model has brought it already

    return MEASURED[test](held.model, iterations, check)  # type: ignore[arg-type]  # an LLM, as it was loaded


def _figures(test: str, measured: Measured) -> dict[str, Any]:
    total = measured.seconds * 1e3
    return {
        "test_type": test,
        "iterations": measured.count,
        "total_time_ms": total,
        "average_time_ms": total / measured.count,
        "tokens_per_second": measured.count / measured.seconds,
        "speedup_vs_baseline": measured.speedup,
        "baseline": None if measured.speedup is None else "the same by the scalar kernels, timed in this call",
    }
