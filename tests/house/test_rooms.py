"""The order of the rooms: a room imports only rooms before it, and says in its first lines what it is."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.imports import names_imported

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "woolly"
ORDER = (
    "version",
    "errors",
    "limits",
    "system",
    "io",
    "config",
    "request",
    "_core",
    "gguf",
    "text",
    "model",
    "plan",
    "device",
    "examine",
    "engine",
    "store",
    "llm",
    "mcp",
    "bench",
    "validate",
    "server",
    "fleet",
    "cli",
)
LEAVES = {
    "version": set(),
    "errors": set(),
    "limits": set(),
    "system": {"errors"},
    "io": {"version", "errors", "system"},
    "config": {"errors", "limits", "system"},
    "request": {"errors", "limits", "config"},
}
MAY_IMPORT_CORE = {"gguf", "text", "device"}
WITHOUT_NAMES = {"io", "llm", "fleet"}  # each of their modules is imported by its own name
FRONT = {"__init__", "__main__"}  # the package's own face: names and the command


def room_of(path: Path) -> str:
    """The room of a source file: the first name below the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported(source: str, package: str) -> set[str]:
    """Every room that a source imports, wherever the import stands; `package` is the package the source lies in."""
    names = (f"{module}.{taken}" if taken else module for module, taken in names_imported(source, package))
    return {name.split(".")[1] for name in names if name.startswith("woolly.")}


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if room_of(path) not in FRONT)


def is_room(name: str) -> bool:
    return name in ORDER


def test_a_room_imports_only_rooms_before_it() -> None:
    assert [sentence for path in sources() for sentence in wrong_imports(path)] == []


def wrong_imports(path: Path) -> Iterator[str]:
    room, file = room_of(path), path.relative_to(ROOT)
    if room not in ORDER:
        yield f"{file}: {room} is no room; rooms and their order are listed here"
        return
    package = ".".join(file.parent.parts)
    imported = {name for name in rooms_imported(path.read_text("utf-8"), package) if is_room(name)} - {room}
    late = {name for name in imported if ORDER.index(name) > ORDER.index(room)}
    if late:
        yield f"{file}: {room} comes before {', '.join(sorted(late))} and may not import it"
    if not imported <= LEAVES.get(room, set(ORDER)):
        yield f"{file}: {room} is a leaf and may import {LEAVES[room] or 'nothing'} of ours"
    if "_core" in imported and room not in MAY_IMPORT_CORE:
        yield f"{file}: {room} may not import the compiled core"


@pytest.mark.parametrize(
    ("source", "rooms"),
    [
        ("import woolly.llm.llm", {"llm"}),
        ("from woolly import engine", {"engine"}),
        ("from woolly.engine.cache.pages import Pages", {"engine"}),
        ("def f():\n    from woolly.cli import main", {"cli"}),
        ("if TYPE_CHECKING:\n    import woolly.plan as p", {"plan"}),
        ("from . import store", {"store"}),
        ("from .store import resolve", {"store"}),
        ("import numpy\nfrom pathlib import Path\n'import woolly.cli'", set()),
    ],
)
def test_the_walk_sees_every_kind_of_import(source: str, rooms: set[str]) -> None:
    assert rooms_imported(source, "woolly") == rooms


def test_the_walk_follows_relative_imports_upwards() -> None:
    assert rooms_imported("from .pages import Pages", "woolly.engine") == {"engine"}
    assert rooms_imported("from ..store import resolve", "woolly.engine") == {"store"}


def rooms_present() -> list[str]:
    return [name for name in ORDER if (PACKAGE / name / "__init__.py").is_file() or (PACKAGE / f"{name}.py").is_file()]


@pytest.mark.parametrize("room", rooms_present())
def test_a_room_says_in_its_first_lines_what_it_is(room: str) -> None:
    folder = PACKAGE / room
    source = folder / "__init__.py" if folder.is_dir() else PACKAGE / f"{room}.py"
    words = ast.get_docstring(ast.parse(source.read_text("utf-8")))
    assert words is not None, f"{source.name} has no docstring"
    assert len(words) > 40


@pytest.mark.parametrize(
    "room", [name for name in rooms_present() if (PACKAGE / name).is_dir() and name not in WITHOUT_NAMES]
)
def test_a_room_lists_its_public_names_and_each_is_there(room: str) -> None:
    module = importlib.import_module(f"woolly.{room}")
    assert module.__all__
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_every_public_name_of_the_package_can_be_had() -> None:
    import woolly

    assert [name for name in woolly.__all__ if not hasattr(woolly, name)] == []
    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        woolly.nothing_of_that_name  # noqa: B018
