"""Runner.times and Runner.read_weights: a timed step gives the same logits and one row for each instruction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import woolly._core as _core
from tests.native.stepping import computed
from tests.tiny import tiny
from woolly import gguf
from woolly.device import Batch
from woolly.device.cpu import TARGET, Runner
from woolly.errors import NativeError
from woolly.model import build
from woolly.plan import Bounds, plan

pytestmark = pytest.mark.native


@pytest.fixture(params=[1, 2, 3])
def runner(tmp_path: Path, request: pytest.FixtureRequest) -> Runner:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        return Runner(plan(build(file), TARGET, Bounds(16, 4, 2, 128)), file, threads=request.param, pages=[4])


def batch(rows: int = 5) -> Batch:
    all_rows = np.arange(rows, dtype=np.int32)
    return Batch(all_rows, np.array([[0, rows, 0]], np.int32), np.array([[0, 1]], np.int32), all_rows[-1:])


def test_a_timed_step_gives_the_same_logits(runner: Runner) -> None:
    plain = computed(runner, batch())
    assert plain is not None
    expected = plain.copy()
    computed(runner, batch(3))
    runner.times(runner.batch.put(batch()))
    assert np.array_equal(runner._outputs["logits"][:1], expected)


def test_every_instruction_has_its_work_and_its_waiting(runner: Runner, tmp_path: Path) -> None:
    with gguf.open(tmp_path / "model.gguf") as file:
        program = plan(build(file), TARGET, Bounds(16, 4, 2, 128))
    for rows in (5, 16) * 10:  # few rows and many have different instructions
        times = runner.times(runner.batch.put(batch(rows)))
        assert times.shape == (len(program.walked(rows, 1)), 2)
        assert (times >= 0).all()
        assert times.sum() > 0


def test_an_unsound_batch_is_refused_and_the_next_step_is_sound(runner: Runner) -> None:
    bad = Batch(np.array([10**6], np.int32), np.array([[0, 1, 0]], np.int32), np.array([[0]], np.int32), np.zeros(1))
    with pytest.raises(NativeError, match="not in the vocabulary"):
        runner.times(runner.batch.put(bad))
    assert computed(runner, batch()) is not None


def test_a_stopped_step_has_no_times(runner: Runner) -> None:
    runner.stop()
    assert runner.times(runner.batch.put(batch())).shape == (0, 2)
    assert len(runner.times(runner.batch.put(batch()))) > 0


def test_the_packed_weights_can_be_read(runner: Runner) -> None:
    assert runner.read_weights() > 0


def test_the_largest_product_can_be_repeated_alone_and_stopped(runner: Runner) -> None:
    expected = np.array(computed(runner, batch()))
    assert (runner.product(3) or 0) > 0
    runner.stop()
    assert runner.product(10**6) is None
    assert np.array_equal(np.array(computed(runner, batch())), expected)  # whatever the workspace held


@pytest.mark.parametrize(("instruction", "times"), [(-1, 1), (10**6, 1), (0, 0)])
def test_an_instruction_that_is_not_there_is_refused(runner: Runner, instruction: int, times: int) -> None:
    with pytest.raises(_core.CoreError):
        runner._core.repeat(instruction, times)


def test_a_set_that_is_not_there_is_refused_and_the_old_one_stays(runner: Runner) -> None:
    before = runner.isa
    with pytest.raises(_core.CoreError), runner.by("mmx"):
        pass
    assert runner.isa == before
    assert computed(runner, batch()) is not None
