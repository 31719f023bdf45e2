"""The heap of a server: freed memory goes back to the system, whatever was allocated after it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

GIVE_BACK = """
from woolly import system
from woolly.server.heap import keep_compact

keep_compact()
for _ in range(3):  # glibc learns that such blocks come and go
    large = bytearray(b"x" * (8 << 20))
    del large
large = bytearray(b"x" * (8 << 20))
above = [b"y" * 100_000 for _ in range(20)]
before = system.usage().current
del large
print(before - system.usage().current)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_a_large_block_that_is_freed_below_others_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", GIVE_BACK], capture_output=True, check=True)
    assert int(done.stdout) > 7 << 20
