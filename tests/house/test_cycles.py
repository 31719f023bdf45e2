"""No import cycles, and no folder with too many files to read at a glance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.imports import Graph, cycles, graph_of

PACKAGE = Path(__file__).resolve().parents[2] / "woolly"
FULL = 24  # Python files directly in a folder
TABLES = {"model/families", "cli"}  # folders with a file for each row of a table, however long the table


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(PACKAGE)


def named(cycle: list[str]) -> str:
    return " -> ".join(cycle)


def test_no_module_imports_what_imports_it(graph: Graph) -> None:
    assert "woolly.errors" in graph["woolly.llm.llm"], "the walk sees no imports"
    assert [named(cycle) for cycle in cycles(graph)] == []


def test_no_module_imports_the_face_of_the_package(graph: Graph) -> None:
    """The names of `woolly` are for users of the package: inside, each is imported from its own module."""
    assert [name for name, imported in graph.items() if "woolly" in imported] == []


THROUGH_FIT = "woolly.errors -> woolly.plan.fit -> woolly.errors"
THROUGH_PLAN = "woolly.plan -> woolly.plan.lower -> woolly.plan"


@pytest.mark.parametrize(
    ("file", "line", "cycle"),
    [
        ("errors.py", "from woolly.plan.fit import fit", THROUGH_FIT),
        ("errors.py", "from woolly.plan import fit", THROUGH_FIT),
        ("errors.py", "from .plan import fit", THROUGH_FIT),
        ("errors.py", "import woolly.plan.fit", THROUGH_FIT),
        ("errors.py", "def f():\n    import woolly.plan.fit as fit", THROUGH_FIT),
        ("errors.py", "if TYPE_CHECKING:\n    from woolly.plan.fit import fit", THROUGH_FIT),
        ("errors.py", "from woolly import __version__", "woolly -> woolly.errors -> woolly"),
        ("plan/lower.py", "from woolly.plan import plan", THROUGH_PLAN),
        ("plan/lower.py", "from . import plan", THROUGH_PLAN),
        ("plan/lower.py", "from woolly.plan import lower", THROUGH_PLAN),  # the package's function of this name
        ("plan/lower.py", "import woolly.plan.lower", "woolly.plan.lower -> woolly.plan.lower"),
    ],
)
def test_a_wrong_import_is_found_and_its_modules_are_named(tmp_path: Path, file: str, line: str, cycle: str) -> None:
    tree = tmp_path / "woolly"
    (tree / "plan").mkdir(parents=True)
    (tree / "__init__.py").write_text("from woolly.errors import WoollyError\n__version__ = '1'\n")
    (tree / "errors.py").write_text("class WoollyError(Exception): ...\n")
    (tree / "plan" / "__init__.py").write_text(
        "from woolly.plan import fit\nfrom .lower import lower\ndef plan(): ...\n"
    )
    (tree / "plan" / "fit.py").write_text("from ..errors import WoollyError\ndef fit(): ...\n")
    (tree / "plan" / "lower.py").write_text("from . import fit\n")
    assert cycles(graph_of(tree)) == []
    with (tree / file).open("a") as source:
        source.write(line + "\n")
    assert [named(one) for one in cycles(graph_of(tree))] == [cycle]


def test_a_folder_has_no_more_files_than_can_be_read_at_one_look() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    full = {folder.relative_to(PACKAGE).as_posix() for folder in folders if len(list(folder.glob("*.py"))) > FULL}
    assert full - TABLES == set(), f"more than {FULL} files: divide the folder"
    assert TABLES - full == set(), "this exception is not needed any more"
