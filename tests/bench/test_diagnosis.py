"""bench.diagnose: what limits has its right name, on trees that the tests write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.test_system import meminfo, mount_v2, online, write
from tests.tiny import tiny
from woolly import bench
from woolly.bench.state import State
from woolly.config import read_config
from woolly.device import cpu
from woolly.plan import gib

MIB = 1 << 20
CPUS = range(4)


def calm(threads: int, **_: object) -> tuple[State, int]:
    return State(50.0, 20.0), 0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of four cores and a gigabyte, without limits."""
    mount_v2(tmp_path, "/job")
    meminfo(tmp_path, 1024 * MIB)
    online(tmp_path, "0-3")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    return tmp_path


@pytest.fixture
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("models") / "tiny.gguf", context=65536)


def diagnose(root: Path, *paths: Path, allowed: object = CPUS, **environ: str) -> bench.Diagnosis:
    return bench.diagnose(read_config(environ), paths, root=root, allowed=allowed, read=calm)  # type: ignore[arg-type]


def first(diagnosis: bench.Diagnosis) -> tuple[str, str]:
    return diagnosis.limits[0].code, diagnosis.limits[0].what


def test_without_limits_memory_is_what_limits(root: Path, model: Path) -> None:
    diagnosis = diagnose(root, model)
    assert [limit.code for limit in diagnosis.limits] == ["bandwidth"]
    assert (diagnosis.threads, diagnosis.huge, diagnosis.memory) == (4, "madvise", 1024 * MIB)


def test_a_cpu_quota_is_named_with_its_numbers(root: Path, model: Path) -> None:
    write(root, "sys/fs/cgroup/job/cpu.max", "150000 100000\n")
    assert first(diagnose(root, model)) == ("cpu_quota", "the CPU quota of 1.5 leaves 1 of 4 cores")


def test_an_affinity_mask_is_named(root: Path, model: Path) -> None:
    assert first(diagnose(root, model, allowed={1, 2})) == ("affinity", "this process may use 2 of 4 CPUs")


def test_too_little_memory_is_named_with_both_numbers_and_whose_limit_it_is(root: Path, model: Path) -> None:
    write(root, "sys/fs/cgroup/job/memory.max", f"{MIB}\n")
    write(root, "sys/fs/cgroup/job/memory.current", "0\n")
    diagnosis = diagnose(root, model)
    code, what = first(diagnosis)
    assert code == "not_enough_memory"
    assert what == (
        f"tiny.gguf needs {gib(diagnosis.models[0].needed)}, "
        "memory.max of the control group /sys/fs/cgroup/job leaves 0.00 GiB"
    )
    assert diagnosis.models[0].needed > MIB and diagnosis.models[0].context == 0
    assert diagnosis.state is None  # there is no room for a buffer to read


def test_a_forced_set_is_named_unless_it_is_the_best(root: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "machine", lambda: {"sets": ["scalar", "avx2"], "isa": "scalar"})
    monkeypatch.setitem(os.environ, "WOOLLY_ISA", "scalar")
    diagnosis = diagnose(root, model)
    assert first(diagnosis) == ("instruction_set", "WOOLLY_ISA makes scalar be used, and this machine has avx2")
    assert diagnosis.forced == "WOOLLY_ISA"
    monkeypatch.setattr(cpu, "machine", lambda: {"sets": ["scalar", "avx2"], "isa": "avx2"})
    assert diagnose(root, model).limits[0].code == "bandwidth"


@pytest.mark.parametrize(("threads", "expected"), [("1", "1 of 4 threads"), ("9", "9 threads, and 4 can run at once")])
def test_a_setting_of_threads_is_named(root: Path, model: Path, threads: str, expected: str) -> None:
    code, what = first(diagnose(root, model, WOOLLY_CPU_THREADS=threads))
    assert code == "threads" and expected in what


def test_missing_huge_pages_are_named(root: Path) -> None:
    write(root, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    assert first(diagnose(root))[0] == "huge_pages"


def test_the_expected_speed_is_bandwidth_over_the_bytes_of_a_token(root: Path, model: Path) -> None:
    one = diagnose(root, model).models[0]
    assert one.tokens_s == pytest.approx(20e9 / one.token_bytes)
    assert 0 < one.token_bytes <= one.file_bytes
    assert one.context > 0 and one.problem == ""


def test_a_file_that_is_no_model_does_not_end_the_diagnosis(root: Path, model: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF and then nothing that makes sense")
    diagnosis = diagnose(root, bad, model, model)
    assert [one.name for one in diagnosis.models] == ["bad.gguf", "tiny.gguf"]
    assert diagnosis.models[0].problem and diagnosis.limits[0].code == "bandwidth"


def test_caches_are_read_with_who_shares_them(root: Path) -> None:
    for index, (level, kind, size, cpus) in enumerate((("1", "Data", "32K", "0"), ("3", "Unified", "32M", "0-3"))):
        for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", cpus)):
            write(root, f"sys/devices/system/cpu/cpu0/cache/index{index}/{name}", text + "\n")
    caches = [(one.level, one.kind, one.nbytes, one.shared) for one in diagnose(root).caches]
    assert caches == [(1, "Data", 32 << 10, 1), (3, "Unified", 32 << 20, 4)]
