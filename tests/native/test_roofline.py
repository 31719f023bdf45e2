"""The loops of the roofline consist of the instructions that they claim; their speed is not tested."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import woolly._core as _core
from tests.native.sketch import SANITIZED
from woolly.device import cpu
from woolly.device.cpu.machine import SETS
from woolly.errors import BusyError

pytestmark = pytest.mark.native

BUILD = Path(__file__).resolve().parents[2] / "build"
PLACE = "arm/cmake" if Path(sys.executable) == BUILD / "arm/python" else "cp*"  # arm/cmake under tools/arm.sh
OBJECTS = sorted(BUILD.glob(f"{PLACE}/CMakeFiles/_core.dir/woolly/device/cpu/roofline.cpp.o"))
OBJDUMP = shutil.which("objdump")

# function -> the instructions of one pass of its loop, besides counting
X86 = {
    "peak_dot_avx512": {"vpdpbusd": 12},
    "peak_fma_avx512": {"vfmadd231ps": 12},
    "peak_dot_avxvnni": {"vpdpbusd": 12},
    "peak_dot_avx2": {"vpmaddubsw": 4, "vpaddw": 4},
    "peak_fma_avx2": {"vfmadd231ps": 12},
}
ARM = {"peak_dot_neon": {"sdot": 24}, "peak_fma_neon": {"fmla": 24}}
LOOPS = {"x86_64": X86, "aarch64": ARM, "arm64": ARM}.get(platform.machine(), {})
COUNTS = {"jne": "dec", "b.ne": "subs"}  # the jump at the end of a loop -> the instruction that counts


def instructions(path: Path, function: str) -> list[tuple[int, str]]:
    """(address, instruction) of a function in an object file."""
    assert OBJDUMP is not None
    text = subprocess.run([OBJDUMP, "-dC", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    result, inside = [], False
    for line in text.stdout.splitlines():
        if line.endswith(">:"):
            inside = f"::{function}(" in line
        elif inside and (row := re.match(r"\s*([0-9a-f]+):\s+(.+)", line)):
            result.append((int(row[1], 16), row[2].removeprefix("{vex}").strip()))
    return result


@pytest.mark.skipif(OBJDUMP is None, reason="objdump is not on this machine")
@pytest.mark.skipif(not OBJECTS, reason="no object of roofline.cpp in build; make build leaves it there")
@pytest.mark.parametrize("function", LOOPS)
def test_a_peak_loop_multiplies_in_registers_and_does_nothing_else(function: str) -> None:
    for path in OBJECTS:
        built = next(folder for folder in path.parents if folder.name == "CMakeFiles").parent
        if "avxvnni" in function and "HAS_AVXVNNI:INTERNAL=1" not in (built / "CMakeCache.txt").read_text():
            pytest.skip("the assembler did not know AVX-VNNI when this was built")
        code = instructions(path, function)
        ((end, jump),) = [(at, text) for at, text in code if text.split()[0] in COUNTS]
        start = int(jump.split()[1], 16)
        loop = [text for at, text in code if start <= at < end]
        names = [text.split()[0] for text in loop]
        counted = {name: names.count(name) for name in LOOPS[function]}
        assert counted == LOOPS[function]
        assert [name for name in names if name not in counted] == [COUNTS[jump.split()[0]]]
        assert not any("(" in text or "[" in text for text in loop), "the loop touches memory"


def test_every_vector_set_has_a_peak_of_integers_and_of_floats() -> None:
    without = {"scalar", "avx512"} if SANITIZED else {"scalar"}  # an emulated set has no instructions of its own
    measured = [(peak.isa, peak.integer) for peak in cpu.peaks(1)]
    assert measured == [(isa, integer) for isa in SETS if isa not in without for integer in (True, False)]
    assert all(peak.rate > 0 for peak in cpu.peaks(2))


@pytest.mark.parametrize("huge", [True, False])
@pytest.mark.parametrize("nbytes", [256, 4096, (1 << 20) + 777])
def test_a_buffer_of_any_size_can_be_touched_and_read(nbytes: int, huge: bool) -> None:
    buffer = cpu.Buffer(nbytes, huge=huge)
    assert buffer.touch(2) > 0
    assert all(buffer.read(threads) > 0 for threads in (1, 2, 3))


def test_memory_that_is_not_there_is_refused() -> None:
    with pytest.raises(BusyError) as caught:
        cpu.Buffer(1 << 60)
    assert caught.value.code == "not_enough_memory"


@pytest.mark.parametrize("threads", [-1, 0, 1025])
def test_an_impossible_number_of_threads_is_refused(threads: int) -> None:
    for measure in (cpu.Buffer(4096).read, cpu.Buffer(4096).touch, cpu.barrier_seconds):
        with pytest.raises(_core.CoreError, match="threads"):
            measure(threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_barrier_and_a_clock_take_time(threads: int) -> None:
    assert 0 < cpu.barrier_seconds(threads, 100) < 10
    assert cpu.clock_hz() > 1e8
