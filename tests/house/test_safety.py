"""Nothing from outside becomes code, and what others wrote is little, known, and new enough."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "woolly"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Modules that make objects or code out of bytes or text.
LOADERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "runpy", "code", "codeop", "pty"}
RUNNERS = {"eval", "exec", "compile", "__import__"}
SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
# Who imports a module by a name that is computed, and why no file or request can choose it.
BY_NAME = {
    "__init__.py": "one of two rooms, both written there",
    "cli/main.py": "a key of COMMANDS, looked up before",
    "cli/completion.py": "each key of COMMANDS",
    "text/worker.py": "each of a tuple, before anything is read",
}

RUN_TIME = {  # package -> the module by which we use it
    "numpy": "numpy",
    "tokenizers": "tokenizers",
    "jinja2": "jinja2",
    "llguidance": "llguidance",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "websockets": "uvicorn.protocols.websockets.websockets_sansio_impl",  # the same for its protocol
    "msgspec": "msgspec",
    "prometheus-client": "prometheus_client",
    "prompt-toolkit": "prompt_toolkit",
    "rich": "rich",
    "tomlkit": "tomlkit",
    "shtab": "shtab",
}
THROUGH = {"huggingface_hub": "tokenizers", "markdown_it": "rich"}  # module -> the package that always brings it
OPTIONAL = {"llama_cpp", "ray"}  # a peer that `bench` measures, a cluster for batches: where somebody installed it


def dangers(source: str) -> Iterator[str]:
    """What in a source could turn input into code or hand it to a shell."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in [*base, *(alias.name for alias in node.names)]:
                if name.split(".")[0] in LOADERS and not getattr(node, "level", 0):
                    yield f"import {name}"
            continue
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        whose, _, name = called.rpartition(".")
        if called.removeprefix("builtins.") in RUNNERS:
            yield name
        if name in SHELLS and whose in ("", "os", "subprocess", "asyncio"):
            yield name
        if whose == "os" and re.match(r"exec|spawn|posix_spawn", name):
            yield name
        for keyword in node.keywords:
            if keyword.arg in ("shell", "allow_pickle"):
                yield f"{keyword.arg}="
        if name == "import_module" and not (node.args and isinstance(node.args[0], ast.Constant)):
            yield "import by name"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_s12_no_source_makes_code_of_input(path: Path) -> None:
    allowed = ["import by name"] if str(path.relative_to(PACKAGE)) in BY_NAME else []
    assert list(dangers(path.read_text("utf-8"))) == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from yaml import load",
        "import marshal as m",
        "def f():\n    import shelve",
        "eval(x)",
        "exec(x)",
        "compile(x, '', 'exec')",
        "__import__(x)",
        "builtins.eval(x)",
        "os.system(x)",
        "os.popen(x)",
        "os.execv(x, y)",
        "subprocess.run(x, shell=True)",
        "subprocess.getoutput(x)",
        "asyncio.create_subprocess_shell(x)",
        "importlib.import_module(x)",
        "import_module(f'woolly.{x}')",
        "np.load(x, allow_pickle=True)",
    ],
)
def test_s12_the_walk_sees_every_danger(source: str) -> None:
    assert len(list(dangers(source))) >= 1


@pytest.mark.parametrize(
    "source", ["re.compile(x)", "import codecs", "self.eval(x)", "subprocess.run([x])", "'eval(x)'"]
)
def test_s12_the_walk_sees_no_danger_where_there_is_none(source: str) -> None:
    assert list(dangers(source)) == []


def test_s12_what_runs_loads_no_other_way_to_make_objects_of_bytes() -> None:
    """Of the modules that do it, only those that come with Python are there, and nothing of ours calls them."""
    rooms = "woolly.llm, woolly.server, woolly.server.metrics, woolly.cli.main, woolly.cli.serve, woolly.cli.run"
    code = f"import sys, {rooms}; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "starlette" in loaded
    assert {name for name in loaded if name in LOADERS and name not in sys.stdlib_module_names} == set()


with (ROOT / "pyproject.toml").open("rb") as pyproject:
    TABLE = tomllib.load(pyproject)


def by_name(lines: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(found.name): found for found in map(Requirement, lines)}


def project() -> dict[str, Requirement]:
    return by_name(TABLE["project"]["dependencies"])


@cache
def imported() -> set[str]:
    """Every module of others that a source imports, with the packages it lies in."""
    names: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found = [node.module or ""]
            else:
                continue
            for name in found:
                parts = name.split(".")
                names |= {".".join(parts[: count + 1]) for count in range(len(parts))}
    return {name for name in names if name.split(".")[0] not in {*sys.stdlib_module_names, "woolly"}}


def test_s23_there_are_few_dependencies_and_each_is_used() -> None:
    assert set(project()) == set(RUN_TIME), "a new one needs its line here, and a reason in the change"
    assert set(RUN_TIME.values()) <= imported()


def test_s23_nothing_is_imported_that_an_installation_may_lack() -> None:
    ours = {module.split(".")[0] for module in RUN_TIME.values()}
    assert {name.split(".")[0] for name in imported()} == ours | set(THROUGH) | OPTIONAL
    for module, package in THROUGH.items():
        wanted = {Requirement(line) for line in metadata.requires(package) or []}
        always = {canonicalize_name(found.name) for found in wanted if "extra" not in str(found.marker)}
        assert always & {canonicalize_name(module), canonicalize_name(module) + "-py"}, package


def test_s23_each_dependency_has_a_floor_and_the_one_with_faults_a_high_one() -> None:
    for name, wanted in project().items():
        assert any(bound.operator in (">=", "==", "~=") for bound in wanted.specifier), name
    assert Version("3.1.6") in project()["jinja2"].specifier
    assert Version("3.1.5") not in project()["jinja2"].specifier  # its sandbox can be left (CVE-2025-27516)


def test_s23_the_lock_file_has_one_right_version_of_everything_with_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8").replace("\\\n", " ")
    rows = [line.split("--hash=") for line in text.splitlines() if not line.startswith("#")]
    assert all(len(row) > 1 and all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", mark) for mark in row[1:]) for row in rows)
    locked = [Requirement(row[0]) for row in rows]
    assert all(re.fullmatch(r"==[^=*]+", str(found.specifier)) and not found.url for found in locked)
    extras = TABLE["project"]["optional-dependencies"]["dev"]
    wanted = project() | by_name(extras) | by_name(TABLE["build-system"]["requires"])
    for name, bounds in wanted.items():
        versions = [str(found.specifier)[2:] for found in locked if canonicalize_name(found.name) == name]
        assert versions and all(Version(version) in bounds.specifier for version in versions), f"{name}: make lock"
