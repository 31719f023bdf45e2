"""The order of the groups inside `server`: a group imports only groups before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.imports import Graph, graph_of

PACKAGE = Path(__file__).resolve().parents[2] / "woolly"
SERVER = "woolly.server."
GROUPS = (  # a folder or a file of woolly/server
    "settings",
    "records",
    "accounts",
    "fair_queue",
    "workers",
    "services",
    "http",
    "dialects.base",
    "routes",
    "models",
    "generate",
    "sessions",
    "batch",
    "mcp",
    "websocket",
    "metrics",
    "dialects",
    "compat",
    "dialect_table",
    "mcp_offers",
    "extension",
    "app",
    "heap",
    "serve",
)


def group_of(module: str) -> str:
    """The group of a module of the server; what dialects share is a group of its own."""
    first, *rest = module.removeprefix(SERVER).split(".")
    return "dialects.base" if [first, *rest[:1]] == ["dialects", "base"] else first


def wrong_imports(graph: Graph) -> list[str]:
    """Every import of a group that comes later, by the names of both modules."""
    return [
        f"{name} imports {other}, but {group_of(name)} comes before {group_of(other)}"
        for name, imported in sorted(graph.items())
        for other in sorted(imported)
        if name.startswith(SERVER) and other.startswith(SERVER)
        if GROUPS.index(group_of(name)) < GROUPS.index(group_of(other))
    ]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(PACKAGE)


def test_every_file_of_the_server_is_of_a_group(graph: Graph) -> None:
    assert {group_of(name) for name in graph if name.startswith(SERVER)} == set(GROUPS)


def test_a_group_imports_only_groups_before_it(graph: Graph) -> None:
    assert wrong_imports(graph) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("http/errors.py", "models.lifecycle"),
        ("models/lifecycle.py", "generate.generate"),
        ("generate/generate.py", "dialects.woolly.generation"),
        ("dialects/base/fields.py", "routes"),
        ("dialects/openai/chat.py", "compat.ole"),
        ("dialects/page.py", "app"),
    ],
)
@pytest.mark.parametrize("line", ["from {} import name", "def f():\n    import {}", "if TYPE_CHECKING:\n    import {}"])
def test_a_wrong_import_is_found_and_both_modules_are_named(
    tmp_path: Path, importer: str, imported: str, line: str
) -> None:
    tree = tmp_path / "woolly"
    for file in (importer, imported.replace(".", "/") + ".py"):
        path = tree / "server" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tree / "server" / importer).write_text(line.format(SERVER + imported))
    (wrong,) = wrong_imports(graph_of(tree))
    assert wrong.startswith(f"{SERVER}{importer.removesuffix('.py').replace('/', '.')} imports {SERVER}{imported}, but")
