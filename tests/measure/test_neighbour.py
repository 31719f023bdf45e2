"""The measurement itself, on a tiny model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.measure.neighbour import measure
from tests.tiny import tiny


@pytest.mark.skipif(sys.platform != "linux", reason="pins a process to a core")
def test_steps_are_timed_alone_and_beside_a_neighbour(tmp_path: Path) -> None:
    pairs = measure(tiny(tmp_path / "tiny.gguf"), threads=2, rounds=2, seconds=0.05)
    assert len(pairs) == 2
    assert all(one.steps and min(one.steps) > 0 and one.rate > 0 for pair in pairs for one in pair)
