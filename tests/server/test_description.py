"""/openapi.json is true: it has all routes and no others, and each body is read by the type that it names."""

from __future__ import annotations

import html.parser
import re
from typing import Any

import msgspec
import pytest

from tests.server.conftest import Live, Start
from tests.server.test_guard import KEYS
from woolly.server.dialect_table import DIALECTS
from woolly.server.dialects.woolly.docs import page
from woolly.server.dialects.woolly.openapi import describe, handler_of, public_path
from woolly.server.http.errors import ERROR_KINDS
from woolly.server.routes import Dialect, Route

ROUTES = [(dialect, route) for dialect in DIALECTS for route in dialect.routes if route.tag]


def described(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Every method and path of a document."""
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]


def names(rows: list[tuple[Dialect, Route]]) -> list[str]:
    return [f"{route.method} {route.path}" for _, route in rows]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe(tuple(ROUTES))


@pytest.mark.parametrize(("dialect", "route"), ROUTES, ids=names(ROUTES))
def test_every_route_is_described(document: dict[str, Any], dialect: Dialect, route: Route) -> None:
    operation = document["paths"][public_path(route.path)][route.method.lower()]
    assert operation["summary"], "the function behind a route needs a docstring"
    assert (operation["security"] == []) == (route.access == "open")
    assert ("401" in operation["responses"]) == (route.access != "open") or handler_of(route).__name__ == "make_token"


def test_every_described_route_exists(document: dict[str, Any], live: Live) -> None:
    assert sorted(described(document)) == sorted({(route.method, public_path(route.path)) for _, route in ROUTES})
    assert live.ask("GET", "/openapi.json")[2] == document
    for method, path in described(document):
        _, headers, _ = live.ask("OPTIONS", re.sub(r"\{\w+\}", "beta", path))
        assert method in headers["allow"]


POSTS = [(dialect, route) for dialect, route in ROUTES if route.method == "POST"]


@pytest.mark.parametrize(("dialect", "route"), POSTS, ids=names(POSTS))
def test_a_body_is_read_by_the_type_that_is_described(
    live: Live, monkeypatch: pytest.MonkeyPatch, dialect: Dialect, route: Route
) -> None:
    seen: set[Any] = set()
    convert = msgspec.convert

    def spy(value: Any, kind: Any, **named: Any) -> Any:
        seen.add(kind)
        return convert(value, kind, **named)

    monkeypatch.setattr(msgspec, "convert", spy)
    bodies = ({"model": "beta"}, {"model": "beta", "prompt": "x"}, {"model": "beta", "texts": ["x"]})
    body = {} if route.accepts is None else next(body for body in bodies if route.accepts(body))
    live.ask(route.method, route.path.replace("{name:path}", "beta"), body)
    assert seen == ({route.body} if route.body is not None else set())


def test_every_status_of_an_error_is_described_somewhere(document: dict[str, Any]) -> None:
    statuses = {
        status
        for _, path in described(document)
        for op in document["paths"][path].values()
        for status in op["responses"]
    }
    answered = {str(row.status) for code, row in ERROR_KINDS.items() if code != "download_error"}  # no route downloads
    assert answered <= statuses


def test_references_lead_somewhere_and_nothing_is_there_for_nobody(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    used = set(re.findall(r"#/components/schemas/([\w.]+)", msgspec.json.encode(document).decode()))
    assert used == set(schemas)


def test_other_names_of_a_field_are_described_with_it(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["PromptBody"]["properties"]
    assert fields["n_predict"]["anyOf"] == fields["max_tokens"]["anyOf"]
    assert "max_tokens" in fields["n_predict"]["description"]


class Reader(html.parser.HTMLParser):
    """Collects the content of a page, and checks that its tags are closed in order."""

    VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_shows_every_route_and_asks_nobody_else(document: dict[str, Any], live: Live) -> None:
    status, headers, body = live.ask("GET", "/docs")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy  # none at all
    assert "frame-ancestors 'none'" in policy
    reader = Reader()
    reader.feed(body.decode())
    assert reader.open == []
    assert {path for _, path in described(document)} <= set(reader.texts)
    assert {tag for tag, _ in reader.tags}.isdisjoint({"script", "img", "link", "iframe", "form"})
    places = [attrs["href"] or "" for tag, attrs in reader.tags if tag == "a"]
    ids = {attrs["id"] for _, attrs in reader.tags if "id" in attrs}
    assert {place.removeprefix("#") for place in places if place.startswith("#")} <= ids
    assert {place for place in places if not place.startswith("#")} == {"/openapi.json"}


def test_what_a_description_says_cannot_become_a_tag() -> None:
    evil = "<script>alert(1)</script>"
    operation = {"tags": [evil], "summary": evil, "description": evil, "responses": {}}
    document = {
        "info": {"title": evil, "version": evil, "description": evil},
        "tags": [{"name": evil}],
        "paths": {f"/{evil}": {"get": operation}},
        "components": {"schemas": {evil: {"properties": {evil: {"enum": [evil], "description": evil}}}}},
    }
    assert b"<script" not in page(document)


def test_the_description_needs_no_key_and_the_figures_do(start: Start) -> None:
    live = start(keys=KEYS, anonymous=False)
    assert [live.ask("GET", path)[0] for path in ("/openapi.json", "/docs")] == [200, 200]
    assert [live.ask("GET", path)[0] for path in ("/metrics", "/api/v1/metrics")] == [401, 401]
