"""Every function over sixteen lanes gives the same in every instruction set, also for numbers rare in kernels."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.sketch import SANITIZED
from woolly.device.cpu.machine import SETS

ROOT = Path(__file__).resolve().parents[2]
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler is on this machine"),
    pytest.mark.skipif(SANITIZED, reason="this build has no instructions of AVX-512"),
]
HERE = [isa for isa in SETS if isa != "scalar"]
EMULATED = ["avxvnni"] if "avx2" in HERE and "avxvnni" not in HERE else []


def flags(isa: str) -> list[str]:
    """The compiler's flags for the kernels of a set; on a machine without the set its instructions are emulated."""
    if isa in EMULATED:
        return [*flags("avx2"), f'-DEMULATED="{isa}.h"', f"-I{ROOT / 'tests/native/emulated'}"]
    match = re.search(rf"set\(FLAGS_{isa} (.+)\)", (ROOT / "CMakeLists.txt").read_text())
    assert match is not None
    return match[1].split()


@pytest.mark.parametrize("isa", HERE + EMULATED)
def test_every_function_of_a_set_does_what_the_plain_one_does(isa: str, tmp_path: Path) -> None:
    library = tmp_path / "lanes.so"
    source = [f'-DLANES="lanes_{isa}.h"', f"-I{ROOT / 'woolly/device/cpu/kernels'}", ROOT / "tests/native/lanes.cpp"]
    strict = ["-std=c++20", "-O1", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *strict, *flags(isa), *source, "-o", library], check=True)
    difference = ctypes.CDLL(str(library)).difference
    difference.restype = ctypes.c_char_p
    assert difference(2000) is None
