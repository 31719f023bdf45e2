"""Strangers' requests made from /openapi.json: none breaks the server, and every answer is as described.

A few examples of each route in `make test`, many in `make soak`. The seeds are fixed; a failure prints its request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import real_server
from woolly.server.dialects import DIALECTS
from woolly.server.openapi import behind, public

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import CHECKS  # noqa: E402

EXAMPLES, SOAK = 5, 50
TOKENS = 4  # of an answer
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
DOORS = {(door.method, public(door.path)): behind(door) for dialect in DIALECTS for door in dialect.doors if door.tag}
FIRST = {function: door for door, function in reversed(DOORS.items())}  # of each function, without its aliases


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
    """Half of the models that are named exist, and no benchmark takes long."""
    for fields in (case.path_parameters, case.body):
        if isinstance(fields, dict):
            for name in {"name", "model"} & fields.keys():
                if isinstance(fields[name], str) and len(fields[name]) % 2:
                    fields[name] = "tiny"
            if isinstance(fields.get("iterations"), int):
                fields["iterations"] = min(fields["iterations"], 3)


def try_out(described: Any, url: str, method: str, path: str, examples: int, *, wrong: bool) -> None:
    """Requests as described and, if `wrong`, as many that break the description."""
    operation = described[path][method]
    checks = CHECKS.get_by_names(CHECKED)
    for mode in GenerationMode:
        if mode is GenerationMode.NEGATIVE and not (wrong and operation.body):
            continue  # every text is a name, and there is nothing else that could be wrong

        @seed(1)
        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def every(case: Any) -> None:
            steer(case)
            case.call_and_validate(base_url=url, checks=checks, timeout=60)

        every()


@pytest.mark.parametrize(("method", "path"), sorted(DOORS))
def test_no_request_breaks_the_server_and_every_answer_is_as_described(
    described: Any, url: str, method: str, path: str
) -> None:
    alias = FIRST[DOORS[method, path]] != (method, path)
    try_out(described, url, method, path, EXAMPLES, wrong=not alias)


@pytest.mark.soak
@pytest.mark.parametrize(("method", "path"), sorted(DOORS))
def test_many_requests_break_nothing_either(described: Any, url: str, method: str, path: str) -> None:
    try_out(described, url, method, path, SOAK, wrong=True)


def test_a_good_request_succeeds_after_all_of_them(described: Any, url: str) -> None:
    case = described["/v1/chat/completions"]["POST"].Case(
        body={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}, media_type="application/json"
    )
    assert case.call(base_url=url).status_code == 200
