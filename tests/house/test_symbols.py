"""Kernel objects leak no symbols.

The same functions are compiled once per instruction set. If one of them had external or weak linkage, the linker would
keep a single copy for all sets, perhaps the one with instructions that this processor does not have.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
OBJECTS = sorted(BUILD.glob("cp*/CMakeFiles/kernels_*.dir/**/*.o"))
NM = shutil.which("nm")

pytestmark = [
    pytest.mark.skipif(NM is None, reason="nm is not on this machine"),
    pytest.mark.skipif(not OBJECTS, reason="no kernel objects in build; make build leaves them there"),
]


def symbols(path: Path) -> list[tuple[str, str]]:
    """(kind, name) of every symbol that an object defines and others can see, or that is weak."""
    assert NM is not None
    lines = subprocess.run([NM, "-C", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in lines.splitlines()]
    return [(row[1], row[2]) for row in rows if len(row) == 3 and (row[1].isupper() or row[1] in "vwu")]


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: f"{path.parts[len(BUILD.parts)]}-{path.stem}")
def test_a_kernel_object_exports_its_table_and_nothing_else(path: Path) -> None:
    exported = symbols(path)
    assert [row for row in exported if row[0] not in "DRB"] == [], "functions or weak symbols are visible"
    assert len(exported) == 1, exported


def test_the_check_sees_weak_functions(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler is on this machine")
    source = tmp_path / "leak.cpp"
    source.write_text(
        "inline int f(int x) { return x + 1; }\nint g(int x) { return f(x); }\nextern const int t; const int t = 1;\n"
    )
    subprocess.run([compiler, "-c", "-O0", source, "-o", tmp_path / "leak.o"], check=True)
    assert sorted(kind for kind, _ in symbols(tmp_path / "leak.o")) == ["R", "T", "W"]
