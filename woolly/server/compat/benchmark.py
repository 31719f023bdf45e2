"""The benchmark of the loaded model: one at a time, limited as a request is, and stopped when its client leaves."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from woolly.config.serving import Serving
from woolly.errors import BusyError, NativeError, RequestError, printable
from woolly.server.dialects.base.shapes import Count, Number, Shape
from woolly.server.models.lifecycle import Models
from woolly.server.routes import Call, Query

if TYPE_CHECKING:
    from woolly.bench.live import Timing
    from woolly.server.models.loaded import LoadedModel

TESTS = ("token_generation", "matrix_multiplication", "memory_allocation")
ITERATIONS, MOST = 100, 10_000
PATH = "/api/v1/performance/benchmark"


class BenchmarkBody(Struct):
    test_type: Annotated[str, Meta(extra_json_schema={"enum": list(TESTS)})]
    iterations: Annotated[int, Meta(ge=1, le=MOST)] = ITERATIONS


class BenchmarkResult(Shape):
    test_type: str
    iterations: Count
    total_time_ms: Number
    average_time_ms: Number
    tokens_per_second: Number
    speedup_vs_baseline: Number | None
    baseline: str | None


class Benchmarks(Shape):
    test_types: list[str]
    running: bool
    results: dict[str, BenchmarkResult]


class Benchmark:
    """`last` holds the last result of each test."""

    def __init__(self) -> None:
        self.running = False
        self.last: dict[str, BenchmarkResult] = {}

    async def run(self, loaded: LoadedModel, test: str, iterations: int, timeout_s: float) -> BenchmarkResult:
        if self.running:
            raise BusyError("a benchmark is running", suggestion="try again when it has ended", code="conflict")
        self.running = True
        gone, end = threading.Event(), time.monotonic() + timeout_s

        def check() -> None:
            if gone.is_set():
                raise BusyError("nobody waits for the benchmark any more")
            if time.monotonic() > end:
                raise NativeError("the benchmark took too long", suggestion="ask for fewer iterations", code="timeout")

        work = asyncio.create_task(asyncio.to_thread(_measure, loaded, test, iterations, check))
        work.add_done_callback(self._done)
        try:
            measured = await asyncio.shield(work)
        finally:
            gone.set()  # a client that leaves stops the work; the next may begin when it has ended
        self.last[test] = _result(test, measured)
        return self.last[test]

    def _done(self, work: asyncio.Task[Any]) -> None:
        self.running = False
        if not work.cancelled():
            work.exception()  # so that asyncio does not report it: its client may have left


def _measure(loaded: LoadedModel, test: str, iterations: int, check: Any) -> Timing:
    from woolly.bench.live import measure  # imports NumPy, which the model has imported already

    return measure(loaded.model, test, iterations, check)


def _result(test: str, measured: Timing) -> BenchmarkResult:
    total = measured.seconds * 1e3
    return BenchmarkResult(
        test_type=test,
        iterations=measured.count,
        total_time_ms=total,
        average_time_ms=total / measured.count,
        tokens_per_second=measured.count / measured.seconds,
        speedup_vs_baseline=measured.speedup,
        baseline=None if measured.speedup is None else "the same by the scalar kernels, timed in this call",
    )


async def run(limits: Serving, models: Models, benchmark: Benchmark, call: Call) -> BenchmarkResult:
    """Time the loaded model; the scalar kernels get at most 2 s for comparison."""
    body: BenchmarkBody = call.body
    if body.test_type not in TESTS:
        raise RequestError(
            f"there is no test '{printable(body.test_type)}'",
            suggestion="test_type is one of " + ", ".join(TESTS),
            code="validation_error",
            param="test_type",
            error_code="INVALID_BENCHMARK_TYPE",
            valid=list(TESTS),
        )
    async with models.lease("") as loaded:
        return await benchmark.run(loaded, body.test_type, body.iterations, limits.request_timeout)


async def results(benchmark: Benchmark, _call: Call) -> Benchmarks:
    """The benchmarks there are, and their last results."""
    return Benchmarks(test_types=list(TESTS), running=benchmark.running, results=benchmark.last)


ROUTES = (
    Query("POST", PATH, run, "Figures", BenchmarkBody, access="key", errors=(404, 409, 504)),
    Query("GET", PATH, results, "Figures"),
)
