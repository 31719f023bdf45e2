"""Strangers' requests made from /openapi.json: none breaks the server, and every answer is as described.

A few examples of each function in `make test`, many of each of its routes in `make soak`. The seeds are fixed; a
failure prints its request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import real_server
from woolly.server.dialect_table import DIALECTS
from woolly.server.dialects.woolly.openapi import handler_of, public_path

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import CHECKS  # noqa: E402

EXAMPLES, SOAK = 3, 50
TOKENS = 4  # the most tokens of an answer
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
ROUTES = {
    (route.method, public_path(route.path)): handler_of(route)
    for dialect in DIALECTS
    for route in dialect.routes
    if route.tag
}
FUNCTIONS = sorted({function: route for route, function in reversed(ROUTES.items())}.values())  # without aliases


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a tiny model, whose answers are short."""
    limits = {"max_tokens": TOKENS}
    with real_server(tmp_path_factory, "tiny", context=512, limits=limits, default_model="tiny") as live:
        yield live.background.url


@pytest.fixture(scope="module")
def described(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def steer(case: Any) -> None:
    """Make half of the named models exist, and all benchmarks short."""
    for fields in (case.path_parameters, case.body):
        if isinstance(fields, dict):
            for name in {"name", "model"} & fields.keys():
                if isinstance(fields[name], str) and len(fields[name]) % 2:
                    fields[name] = "tiny"
            if isinstance(fields.get("iterations"), int):
                fields["iterations"] = min(fields["iterations"], 1)


def try_out(described: Any, url: str, method: str, path: str, examples: int) -> None:
    """Requests as described, and as many that break the description."""
    operation = described[path][method]
    checks = CHECKS.get_by_names(CHECKED)
    for mode in GenerationMode:
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # every text is a valid name, and nothing else in the request could be wrong

        @seed(1)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def one_case(case: Any) -> None:
            steer(case)
            case.call_and_validate(base_url=url, checks=checks, timeout=60)

        one_case()


@pytest.mark.parametrize(("method", "path"), FUNCTIONS)
def test_no_request_breaks_the_server_and_every_answer_is_as_described(
    described: Any, url: str, method: str, path: str
) -> None:
    try_out(described, url, method, path, EXAMPLES)


@pytest.mark.soak
@pytest.mark.parametrize(("method", "path"), sorted(ROUTES))
def test_many_requests_break_nothing_either(described: Any, url: str, method: str, path: str) -> None:
    try_out(described, url, method, path, SOAK)


def test_a_good_request_succeeds_after_all_of_them(described: Any, url: str) -> None:
    case = described["/v1/chat/completions"]["POST"].Case(
        body={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}, media_type="application/json"
    )
    assert case.call(base_url=url).status_code == 200
