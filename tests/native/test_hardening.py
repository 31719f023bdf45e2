"""The compiled core is linked so that a mistake in it is hard to use."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest

STACK, RELRO, DYNAMIC, LOAD = 0x6474E551, 0x6474E552, 2, 1  # kinds of segments
EXECUTED, WRITTEN = 1, 2  # flags of a segment
FLAGS, BIND_NOW = 30, 8  # of the dynamic section


@pytest.fixture(scope="module")
def core() -> bytes:
    spec = importlib.util.find_spec("woolly._core")
    assert spec is not None and spec.origin is not None
    data = Path(spec.origin).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        pytest.skip("the core is no ELF file of 64 bits")
    return data


def segments(core: bytes) -> list[tuple[int, int, bytes]]:
    """Kind, flags and bytes of each."""
    (at,) = struct.unpack_from("<Q", core, 32)
    size, count = struct.unpack_from("<HH", core, 54)
    rows = [struct.unpack_from("<IIQQQQ", core, at + size * i) for i in range(count)]
    return [(kind, flags, core[offset : offset + length]) for kind, flags, offset, _, _, length in rows]


def test_s22_no_memory_of_the_core_is_both_written_and_executed(core: bytes) -> None:
    rows = segments(core)
    assert [flags & EXECUTED for kind, flags, _ in rows if kind == STACK] == [0]
    assert all(flags & (WRITTEN | EXECUTED) != WRITTEN | EXECUTED for kind, flags, _ in rows if kind == LOAD)


def test_s22_addresses_of_other_libraries_are_found_at_the_start_and_then_sealed(core: bytes) -> None:
    (dynamic,) = [data for kind, _, data in segments(core) if kind == DYNAMIC]
    assert any(kind == RELRO for kind, _, _ in segments(core))
    assert any(tag == FLAGS and value & BIND_NOW for tag, value in struct.iter_unpack("<qQ", dynamic))


def test_s22_a_stack_that_is_written_beyond_its_end_ends_the_process(core: bytes) -> None:
    assert b"\0__stack_chk_fail\0" in core
