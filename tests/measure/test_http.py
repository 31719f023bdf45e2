"""The measurement itself, on a tiny model: every figure is there and makes sense."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.measure.http import lines, measure
from tests.tiny import tiny


@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU time of threads from /proc")
def test_every_figure_is_measured(tmp_path: Path) -> None:
    rows = measure(tiny(tmp_path / "tiny.gguf", vocab=4096), tokens=24, rounds=2, threads=1)
    assert {len(values) for values in rows.values()} == {2}
    assert all(value > 0 for values in rows.values() for value in values)
    assert all(value < 1 for value in rows["outside"])
    assert len(list(lines("tiny", rows))) == 6
