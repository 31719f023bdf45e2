"""Packing for a device with memory of its own: the panels of a weight are the same in any memory of the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import _core, gguf
from woolly.device import cpu
from woolly.gguf.tensor_types import LAYOUTS
from woolly.model import build
from woolly.plan import Bounds, plan

pytestmark = pytest.mark.native


@pytest.mark.parametrize("isa", cpu.SETS)
def test_every_weight_has_the_same_bytes_wherever_it_is_packed_to(isa: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", "granite", "Q4_K")) as file:
        program = plan(build(file), cpu.TARGET, Bounds(16, 4, 2, 128))
        runner = cpu.Runner(program, file, threads=2, pages=[4])
        weights = runner._core.weights
        for order in program.packs:
            out = np.full(order.nbytes + 128, 7, np.uint8)
            cpu.pack(order, program, file, out[64:-64], threads=2, isa=isa)
            assert set(out[:64].tolist() + out[-64:].tolist()) == {7}, order.weight
            assert np.array_equal(out[64:-64], weights[order.place : order.place + order.nbytes]), order.weight


def test_panels_that_do_not_fit_their_memory_are_refused() -> None:
    layout, runs = LAYOUTS["q8_0"], np.array([(0, 16, 0, 0)], np.int64)
    raw = np.ones((16, 34), np.uint8)
    for nbytes in (0, layout.size(16, 32) - 1):
        with pytest.raises(_core.CoreError, match="outside"):
            _core.pack(np.zeros(nbytes, np.uint8), "q8_0", 16, 32, 34, runs, [raw.reshape(-1)], 1, "scalar")
    out = np.zeros(layout.size(16, 32), np.uint8)
    assert _core.pack(out, "q8_0", 16, 32, 34, runs, [raw.reshape(-1)], 1, "scalar")
    assert np.array_equal(out, layout.pack(raw, 32).reshape(-1))
    for threads in (0, 1025):
        with pytest.raises(_core.CoreError, match="threads"):
            _core.pack(out, "q8_0", 16, 32, 34, runs, [raw.reshape(-1)], threads, "scalar")
