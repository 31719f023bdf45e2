"""Which module imports which: a walk over the sources of a package, without importing any of them.

Every import counts, wherever it stands: at the top, inside a function, under TYPE_CHECKING; absolute or relative. A
string that names a module at run time (`import_module(f"woolly.cli.{name}")`) is a row of a table, and counts as none.

`from package import name` is an import of the submodule `name`, unless the package's `__init__` itself defines that
name, which Python then prefers. An `__init__` is a module like any other: importing one of its names imports it. Python
also runs it before any submodule, but nobody wrote that import, so it does not count; otherwise every room whose
`__init__` collects its public names would be a cycle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

Graph = dict[str, set[str]]


def names_imported(source: str, package: str) -> Iterator[tuple[str, str | None]]:
    """Every import of a source in the package `package`: the module, and the name taken out of it, if one is."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, alias.name) for alias in node.names)


def modules(root: Path) -> dict[str, Path]:
    """The modules of the package that is the folder `root`: dotted name to file. Stubs stand for compiled modules."""
    files: dict[str, Path] = {}
    for path in sorted([*root.rglob("*.pyi"), *root.rglob("*.py")]):
        parts = path.relative_to(root.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def graph_of(root: Path) -> Graph:
    """For each module of the package in the folder `root`, the modules of that package that it imports."""
    files = modules(root)
    sources = {name: path.read_text("utf-8") for name, path in files.items()}
    own = {name: _names_bound(sources[name], name) for name, path in files.items() if path.stem == "__init__"}
    graph: Graph = {}
    for name, path in files.items():
        package = name if path.stem == "__init__" else name.rpartition(".")[0]
        graph[name] = set()
        for module, taken in names_imported(sources[name], package):
            submodule = f"{module}.{taken}"
            if taken is not None and submodule in files and taken not in own[module]:
                graph[name].add(submodule)
            elif module in files:
                graph[name].add(module)
    return graph


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """A shortest cycle of each tangle of modules, beginning and ending with the same module; empty if there is none."""
    result: list[list[str]] = []
    seen: set[str] = set()
    for name in sorted(graph):
        if name not in seen and (cycle := _cycle_through(name, graph)) is not None:
            result.append(cycle)
            seen |= {other for other in _reached(name, graph) if name in _reached(other, graph)}
    return result


def _cycle_through(start: str, graph: Mapping[str, set[str]]) -> list[str] | None:
    """A shortest way from a module back to itself, by breadth first."""
    ways = [[start]]
    reached: set[str] = set()
    for way in ways:
        for name in sorted(graph[way[-1]]):
            if name == start:
                return [*way, start]
            if name not in reached:
                reached.add(name)
                ways.append([*way, name])
    return None


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """All modules that importing one leads to."""
    reached: set[str] = set()
    todo = [start]
    while todo:
        for name in graph[todo.pop()] - reached:
            reached.add(name)
            todo.append(name)
    return reached


def _names_bound(source: str, package: str) -> set[str]:
    """The names that an `__init__` makes its own at its top level, by an assignment, a definition or an import from
    elsewhere: what it takes out of its own package is a submodule."""
    bound: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and node.module != package and (node.module or not node.level):
            bound |= {alias.asname or alias.name for alias in node.names}
    return bound
