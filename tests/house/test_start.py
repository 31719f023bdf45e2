"""Starting costs little: nothing heavy is imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

LIGHT = [
    "woolly",
    "woolly.errors",
    "woolly.config.rows",
    "woolly.limits",
    "woolly.system",
    "woolly.config",
    "woolly.request",
    "woolly.store",
]
HEAVY = "{'numpy', 'tokenizers', 'jinja2', 'llguidance', 'huggingface_hub', 'rich', 'prompt_toolkit', 'woolly._core'}"


def python(code: str, *args: str) -> str:
    result = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("module", [*LIGHT, "woolly.cli.main"])
def test_a_light_room_imports_nothing_heavy(module: str) -> None:
    assert python(f"import sys, {module}; print(sorted(set(sys.modules) & {HEAVY}))").strip() == "[]"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_version_and_the_help_import_nothing_heavy(option: str) -> None:
    code = f"import sys; from woolly.cli.main import main; main(); print(sorted(set(sys.modules) & {HEAVY}))"
    assert python(code, option).splitlines()[-1] == "[]"


def modules(words: str) -> int:
    """How many modules the code imports beyond those that Python has loaded at its start."""
    code = f"import sys; before = len(sys.modules); {words}; print(len(sys.modules) - before)"
    return int(python(code, "--version").splitlines()[-1])


def test_importing_the_package_and_telling_the_version_import_few_modules() -> None:
    assert modules("import woolly") < 60
    assert modules("from woolly.cli.main import main; main()") < 60


@pytest.mark.soak
def test_importing_the_package_is_quick() -> None:
    code = "import time; t = time.process_time(); import woolly; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(5)) < 0.05


@pytest.mark.soak
def test_the_version_takes_little_more_than_starting_python() -> None:
    def seconds(*words: str) -> float:
        begin = time.monotonic()
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        return time.monotonic() - begin

    pairs = [(seconds("-m", "woolly", "--version"), seconds("-c", "pass")) for _ in range(10)]
    assert min(woolly for woolly, _ in pairs) < 4 * min(bare for _, bare in pairs)
