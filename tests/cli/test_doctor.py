"""woolly doctor: what a report of a fault needs, with the right limit named."""

from __future__ import annotations

import json
import re
import resource
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly, command
from woolly import __version__, bench
from woolly.device.cpu import machine

GIB = 1 << 30


@pytest.fixture(scope="session")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the shape of an 8B model that takes no room."""
    title, shape, mix = bench.read_shape("llama-3.1-8b:Q4_K_M")
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    return bench.write_model(path, title, shape, mix, hollow=True)


def finished(environ: dict[str, str], line: list[str], *, limited: bool) -> subprocess.CompletedProcess[str]:
    """A command line at its end; limited: with an address space of 2 GiB."""
    return subprocess.run(
        line,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB))) if limited else None,
    )


def test_it_tells_what_a_report_of_a_fault_needs(woolly: Woolly) -> None:
    done = woolly("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    for word in (
        "woolly",
        "processor",
        "sets",
        "cores",
        "caches",
        "memory",
        "huge pages",
        "reading",
        "models",
        "limits",
    ):
        assert re.search(f"^{word} ", done.stdout, re.M), word
    assert __version__ in done.stdout and "tiny-talker.gguf" in done.stdout and "tokens/s" in done.stdout


def test_quiet_tells_only_what_limits(woolly: Woolly) -> None:
    assert woolly("doctor", "--quiet").stdout.startswith("limits ")


def test_json_has_every_figure(woolly: Woolly) -> None:
    report = json.loads(woolly("doctor", "--json").stdout)
    assert report["sets"] == machine()["sets"] and report["cores"]["threads"] >= 1 and report["limits"]
    assert [one["name"] for one in report["models"]] == ["tiny-talker.gguf"]


@pytest.mark.skipif(len(machine()["sets"]) < 2, reason="this machine has one instruction set")  # type: ignore[arg-type]
@pytest.mark.parametrize("variable", [("WOOLLY_ISA", "scalar"), ("WOOLLY_DISABLE_SIMD", "1")])
def test_a_forced_instruction_set_is_the_limit(started: Woolly, variable: tuple[str, str]) -> None:
    limits = json.loads(started("doctor", "--json", **dict([variable])).stdout)["limits"]
    assert limits[0]["code"] == "instruction_set" and variable[0] in limits[0]["what"]


def test_f10_a_model_larger_than_a_limit_is_the_limit(environ: dict[str, str], hollow: Path) -> None:
    done = finished(environ | {"WOOLLY_MODELS_DIR": str(hollow.parent)}, command("doctor", "--json"), limited=True)
    limit = json.loads(done.stdout)["limits"][0]
    assert limit["code"] == "not_enough_memory" and "ulimit -v" in limit["remedy"]
    assert f"needs {hollow.stat().st_size / GIB:.2f} GiB" in limit["what"]


CHILD = """
import sys
from functools import partial
from pathlib import Path
from woolly import system
from woolly.cli.main import main
if sys.argv[1]:
    system.memory = partial(system.memory, root=Path(sys.argv[1]))
code = main(sys.argv[2:])
print(system.usage().peak)
sys.exit(code)
"""


@pytest.mark.parametrize("words", [("run", "--context", "1024"), ("run",), ("perplexity",)])
@pytest.mark.parametrize("limit", ["cgroup", "rlimit"])
def test_f10_a_model_that_does_not_fit_is_refused_before_anything_is_allocated(
    environ: dict[str, str], hollow: Path, tmp_path: Path, words: tuple[str, ...], limit: str
) -> None:
    from tests.test_system import meminfo, mount_v2, write

    text = tmp_path / "text.txt"
    text.write_text("hello")
    root = tmp_path / "root"
    mount_v2(root, "/job")
    meminfo(root, 64 * GIB)
    write(root, "sys/fs/cgroup/job/memory.max", f"{2 * GIB}\n")
    write(root, "sys/fs/cgroup/job/memory.current", "0\n")
    line = [*command()[:1], "-c", CHILD, str(root) if limit == "cgroup" else ""]
    line += [words[0], str(hollow), str(text) if words[0] == "perplexity" else "hello", *words[1:]]
    done = finished(environ, line, limited=limit == "rlimit")
    assert done.returncode == 5, done.stderr
    assert done.stderr.count("\n") == 1
    needed, free = map(float, re.findall(r"([\d.]+) GiB", done.stderr))
    if limit == "cgroup":
        assert free == 2.0
        assert 4.58 * 1.1 < needed < 4.58 * 1.1 + 0.7  # the weights and a tenth, a small cache and the work area
    else:
        assert needed == pytest.approx(hollow.stat().st_size / GIB, abs=0.01)
        assert 1.0 < free < 2.0
    assert int(done.stdout) < 100 << 20
