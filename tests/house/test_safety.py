"""Nothing from outside becomes code, and the dependencies are few, known, and new enough."""

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
# Modules that import by a computed name, and why no file or request can choose that name.
BY_NAME = {
    "__init__.py": "one of two rooms, both written there",
    "cli/commands.py": "a key of COMMANDS, looked up before",
    "text/template/worker.py": "each of a tuple, before anything is read",
}

RUN_TIME = {  # package -> the module by which we use it
    "numpy": "numpy",
    "tokenizers": "tokenizers",
    "jinja2": "jinja2",
    "llguidance": "llguidance",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "python-multipart": "python_multipart",
    "websockets": "websockets",
    "msgspec": "msgspec",
    "prometheus-client": "prometheus_client",
    "prompt-toolkit": "prompt_toolkit",
    "rich": "rich",
    "tomlkit": "tomlkit",
    "shtab": "shtab",
}
THROUGH = {"huggingface_hub": "tokenizers", "markdown_it": "rich"}  # module -> the package that always brings it
OPTIONAL = {"llama_cpp", "ray"}  # used only where installed: a peer that `bench` measures, a cluster for batches


def dangers(source: str) -> Iterator[str]:
    """Every place of a source that could turn input into code or pass it to a shell."""
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


def test_s12_no_source_makes_code_of_input() -> None:
    seen = {str(path.relative_to(PACKAGE)): list(dangers(path.read_text("utf-8"))) for path in SOURCES}
    assert {name: what for name, what in seen.items() if what} == {name: ["import by name"] for name in BY_NAME}


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
    """Of modules that make objects of bytes, only those of Python itself are loaded, and no file of ours calls them."""
    modules = "woolly.llm.llm, woolly.server.metrics.prometheus, woolly.cli.main, woolly.cli.serve, woolly.cli.run"
    code = f"import sys, {modules}; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "uvicorn" in loaded
    assert {name for name in loaded if name in LOADERS and name not in sys.stdlib_module_names} == set()


with (ROOT / "pyproject.toml").open("rb") as pyproject:
    TABLE = tomllib.load(pyproject)


def by_name(lines: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines)}


def project() -> dict[str, Requirement]:
    return by_name(TABLE["project"]["dependencies"])


@cache
def imported() -> set[str]:
    """Every third-party module that a source imports, with its parent packages."""
    names: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            for name in modules:
                parts = name.split(".")
                names |= {".".join(parts[: count + 1]) for count in range(len(parts))}
    return {name for name in names if name.split(".")[0] not in {*sys.stdlib_module_names, "woolly"}}


def test_s23_there_are_few_dependencies_and_each_is_used() -> None:
    assert set(project()) == set(RUN_TIME), "a new one needs its line here, and a reason in the change"
    assert set(RUN_TIME.values()) <= imported()


def test_uvicorn_whose_inner_parts_may_change_is_imported_in_one_place() -> None:
    users = [
        path for path in PACKAGE.rglob("*.py") if re.search(r"^\s*(import|from) uvicorn", path.read_text("utf-8"), re.M)
    ]
    assert [str(path.relative_to(PACKAGE)) for path in users] == ["server/listener.py"]


def test_s23_nothing_is_imported_that_an_installation_may_lack() -> None:
    ours = {module.split(".")[0] for module in RUN_TIME.values()}
    assert {name.split(".")[0] for name in imported()} == ours | set(THROUGH) | OPTIONAL
    for module, package in THROUGH.items():
        wanted = {Requirement(line) for line in metadata.requires(package) or []}
        always = {canonicalize_name(each.name) for each in wanted if "extra" not in str(each.marker)}
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
    assert all(re.fullmatch(r"==[^=*]+", str(each.specifier)) and not each.url for each in locked)
    extras = TABLE["project"]["optional-dependencies"]["dev"]
    wanted = project() | by_name(extras) | by_name(TABLE["build-system"]["requires"])
    for name, bounds in wanted.items():
        versions = [str(each.specifier)[2:] for each in locked if canonicalize_name(each.name) == name]
        assert versions and all(Version(version) in bounds.specifier for version in versions), f"{name}: make lock"
