"""The order of the groups inside large rooms: a group imports only groups before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.imports import Graph, graph_of

PACKAGE = Path(__file__).resolve().parents[2] / "woolly"
GROUPS = {  # of a room: its folders and files
    "model": (
        "keys",
        "tables",
        "meta",
        "operands",
        "ops",
        "graph",
        "tensors",
        "states",
        "builder",
        "blocks",
        "families",
        "load",
        "adapters",
        "reference",
    ),
    "device": (
        "batch",
        "queue",
        "runner",
        "device",
        "cpu",
    ),
    "server": (
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
        "router",
        "dispatch",
        "app",
        "heap",
        "sockets",
        "listener",
        "serve",
    ),
}


def group_of(module: str) -> str:
    """The group of a module; what the dialects of the server share is a group of its own."""
    first, *rest = module.split(".")[2:]
    return "dialects.base" if [first, *rest[:1]] == ["dialects", "base"] else first


def modules_of(graph: Graph, room: str) -> list[str]:
    return sorted(name for name in graph if name.startswith(f"woolly.{room}."))


def wrong_imports(graph: Graph, room: str) -> list[str]:
    """Every import of a group that comes later, by the names of both modules."""
    groups, modules = GROUPS[room], modules_of(graph, room)
    return [
        f"{name} imports {other}, but {group_of(name)} comes before {group_of(other)}"
        for name in modules
        for other in sorted(graph[name].intersection(modules))
        if groups.index(group_of(name)) < groups.index(group_of(other))
    ]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(PACKAGE)


@pytest.mark.parametrize("room", GROUPS)
def test_every_file_of_the_room_is_of_a_group(graph: Graph, room: str) -> None:
    assert {group_of(name) for name in modules_of(graph, room)} == set(GROUPS[room])


@pytest.mark.parametrize("room", GROUPS)
def test_a_group_imports_only_groups_before_it(graph: Graph, room: str) -> None:
    assert wrong_imports(graph, room) == []


@pytest.mark.parametrize(
    ("room", "importer", "imported"),
    [
        ("server", "http/errors.py", "models.lifecycle"),
        ("server", "models/lifecycle.py", "generate.generate"),
        ("server", "generate/generate.py", "dialects.woolly.generation"),
        ("server", "dialects/base/fields.py", "routes"),
        ("server", "dialects/openai/chat.py", "compat.ole"),
        ("server", "dialects/page.py", "app"),
        ("device", "runner.py", "cpu.runner"),
        ("model", "ops/weights.py", "graph"),
        ("model", "ops/attend.py", "reference.exact"),
        ("model", "builder.py", "blocks.layers"),
    ],
)
@pytest.mark.parametrize("line", ["from {} import name", "def f():\n    import {}", "if TYPE_CHECKING:\n    import {}"])
def test_a_wrong_import_is_found_and_both_modules_are_named(
    tmp_path: Path, room: str, importer: str, imported: str, line: str
) -> None:
    tree = tmp_path / "woolly"
    for file in (importer, imported.replace(".", "/") + ".py"):
        path = tree / room / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tree / room / importer).write_text(line.format(f"woolly.{room}.{imported}"))
    (wrong,) = wrong_imports(graph_of(tree), room)
    assert wrong.startswith(
        f"woolly.{room}.{importer.removesuffix('.py').replace('/', '.')} imports woolly.{room}.{imported}, but"
    )
