"""The routes of the benchmark: real work by the loaded model, and the last results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from woolly.errors import RequestError, printable
from woolly.server.benchmark import ITERATIONS, MOST, TESTS
from woolly.server.dialects.fields import read_struct
from woolly.server.door import Call, Reply

if TYPE_CHECKING:
    from woolly.server.app import App


class BenchmarkBody(msgspec.Struct):
    test_type: Annotated[str, Meta(extra_json_schema={"enum": list(TESTS)})]
    iterations: Annotated[int, Meta(ge=1, le=MOST)] = ITERATIONS


async def benchmark(app: App, call: Call) -> Reply:
    """Time the loaded model at one of three tests; the scalar kernels get at most 2 s for comparison."""
    body = read_struct(BenchmarkBody, call.body)
    if body.test_type not in TESTS:
        raise RequestError(
            f"there is no test '{printable(body.test_type)}'",
            suggestion="test_type is one of " + ", ".join(TESTS),
            code="validation_error",
            param="test_type",
            error_code="INVALID_BENCHMARK_TYPE",
            valid=list(TESTS),
        )
    async with app.models.lease("") as held:
        limits = app.settings.limits
        return Reply(await app.benchmark.run(held, body.test_type, body.iterations, limits.request_timeout))


async def benchmarks(app: App, _call: Call) -> Reply:
    """The tests there are, whether one runs, and the last result of each."""
    return Reply({"test_types": list(TESTS), "running": app.benchmark.running, "results": app.benchmark.last})
