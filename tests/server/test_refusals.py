"""Every route that takes a body refuses wrong ones with an error in the shape of its own dialect, whichever part finds
the fault: the guard, the reader of bodies, the route. After each refusal a good request succeeds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import msgspec
import pytest

from tests.server.conftest import Live, Start
from tests.server.test_guard import KEYS
from woolly.server.dialect_table import DIALECTS
from woolly.server.routes import Query


@dataclass(frozen=True, slots=True)
class Fault:
    status: int
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)  # settings of the server


FAULTS = {
    "no JSON": Fault(400, b"{"),
    "no UTF-8": Fault(400, b'{"model": "\xff"}'),
    "JSON without end": Fault(400, b"[" * 100_000),
    "no number": Fault(400, b'{"seed": NaN}'),
    "a name twice": Fault(400, b'{"model": "a", "model": "b"}'),
    "a text": Fault(400, b'"model"'),
    "another charset": Fault(400, headers={"Content-Type": "application/json; charset=utf-16"}),
    "no key": Fault(401, server={"keys": KEYS, "anonymous": False}),
    "another page": Fault(403, headers={"Origin": "https://evil.example"}),
    "another name": Fault(403, headers={"Host": "evil.example"}),
    "too many bytes": Fault(413, b'{"model": "' + b"x" * 2000 + b'"}', server={"limits": {"max_body_size": 1000}}),
    "compressed": Fault(415, headers={"Content-Encoding": "gzip"}),
    "too often": Fault(429, server={"anonymous_rpm": 1, "burst": 1}),
}


def routes() -> dict[str, list[tuple[Any, ...]]]:
    """The path of each route that takes a body, and for each dialect that has it the types of its errors there."""
    types_by_path: dict[str, list[tuple[Any, ...]]] = {}
    for dialect in DIALECTS:
        for route in dialect.routes:
            if route.method == "POST" and route.body is not None and route.access != "open":
                shapes = (dialect.error, route.failed if isinstance(route, Query) else None)
                types = tuple(get_type_hints(shape)["return"] for shape in shapes if shape)
                types_by_path.setdefault(re.sub(r"\{[^}]*\}", "beta", route.path), []).append(types)
    return types_by_path


ROUTES = routes()


def is_one_of(types: Iterable[Any], body: Any) -> bool:
    for one in types:
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert(body, one)
            return True
    return False


def test_the_routes_of_every_dialect_are_asked() -> None:
    wanted = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/v1/messages", "/mcp")
    wanted += ("/api/chat", "/api/embed", "/completion", "/infill", "/tokenize", "/api/v1/inference/chat")
    assert ROUTES.keys() >= {*wanted}
    assert len({types[0] for several in ROUTES.values() for types in several}) >= 6


@pytest.mark.parametrize("name", FAULTS)
def test_a_refusal_has_the_shape_of_its_dialect_on_every_route(start: Start, name: str) -> None:
    fault = FAULTS[name]
    live = start(**fault.server)
    if name == "too often":
        live.ask("GET", "/v1/models")
    for path, (types, *_) in ROUTES.items():
        code, headers, answer = live.ask("POST", path, fault.body, fault.headers)
        assert code == fault.status, f"{path}: {code} {answer}"
        assert headers["content-type"] == "application/json", path
        assert is_one_of(types, answer), f"{path}: {answer}"
    assert live.loader.talkers == []
    if not fault.server:
        assert live.chat()[0] == 200


def test_fields_of_other_types_are_no_fault_of_the_server_and_are_refused_in_the_shape_of_a_dialect(live: Live) -> None:
    for path, several in ROUTES.items():
        code, _, answer = live.ask("POST", path, {"model": {"a": 1}, "method": 5, "name": [], "path": 7})
        assert code in (200, 400, 404), f"{path}: {code} {answer}"
        assert code == 200 or any(is_one_of(types, answer) for types in several), f"{path}: {answer}"
    assert live.chat()[0] == 200
