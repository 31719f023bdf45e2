"""ARCHITECTURE.md names what is there, and its list of words is short."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "woolly"
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
QUOTED = sorted(set(re.findall(r"`([\w./]+)(?:\([^`]*\))?`", PAGE)))
MOST_WORDS = 22


@cache
def members() -> dict[str, set[str]]:
    """The methods and fields of each class, of all classes that are called so."""
    result = defaultdict[str, set[str]](set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                result[node.name] |= {name for line in node.body if (name := _bound_by(line)) is not None}
                result[node.name] |= {
                    target.attr
                    for target in ast.walk(node)
                    if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
                }
    return result


def _bound_by(line: ast.stmt) -> str | None:
    match line:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return None


def test_every_method_that_the_page_names_is_there() -> None:
    named = [name.split(".") for name in QUOTED if re.fullmatch(r"[A-Z]\w+\.\w+", name)]
    assert len(named) > 20
    assert [f"{owner}.{method}" for owner, method in named if method not in members()[owner]] == []


def test_every_file_that_the_page_names_is_there() -> None:
    named = [name for name in QUOTED if re.fullmatch(r"[\w/]+\.(py|cpp|h|inl)", name)]
    there = [path.as_posix() for path in PACKAGE.rglob("*.*")]
    assert len(named) > 20
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_every_function_that_the_page_names_by_its_module_is_there() -> None:
    """By the end of its path: `generate.answer` is of woolly/server/generate/generate.py."""
    named = [
        name.rsplit(".", 1) for name in QUOTED if re.fullmatch(r"[a-z_/]+\.\w+", name) and not name.endswith(".py")
    ]
    assert len(named) > 20
    assert [f"{module}.{name}" for module, name in named if name not in bound_in(module)] == []


def bound_in(module: str) -> set[str]:
    """The names that all modules bind whose path ends so."""
    result: set[str] = set()
    for path in (*PACKAGE.rglob(f"{module}.py"), *PACKAGE.rglob(f"{module}/__init__.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    result.add(name)
                case ast.ImportFrom(names=names):
                    result |= {alias.asname or alias.name for alias in names}
        result |= {path.stem for path in path.parent.glob("*.py")} if path.stem == "__init__" else set()
    return result


def test_the_list_of_words_is_short() -> None:
    rows = re.findall(r"^\| (?!word |--- )", PAGE.partition("\n## Words\n")[2], re.MULTILINE)
    assert 10 < len(rows) <= MOST_WORDS
