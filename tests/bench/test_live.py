"""A model measured while it serves: real work, in small pieces, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import tiny
from woolly.bench import live
from woolly.device.cpu.machine import SETS
from woolly.errors import BusyError
from woolly.llm.llm import LLM


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(tiny(tmp_path_factory.mktemp("live") / "small.gguf", context=64), threads=2) as loaded:
        yield loaded


def nothing() -> None:
    pass


@pytest.mark.parametrize("name", live.TESTS)
def test_a_test_is_timed_and_compared_where_there_are_kernels(
    llm: LLM, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BASELINE_S", 0.2)
    measured = live.TESTS[name](llm, 40, nothing)
    assert measured.count == 40
    assert measured.seconds > 0
    compared = name != "memory_allocation" and llm.info.isa != "scalar"
    assert (measured.speedup is not None) == compared
    assert not compared or (measured.speedup or 0) > 0


def test_every_product_is_computed(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, computed = live._runner(llm.engine), []
    product = runner.product

    def counted(times: int) -> float | None:
        seconds = product(times)
        if seconds is not None:  # None: a timer of the test before has stopped it, and it is computed again
            computed.append(times)
        return seconds

    monkeypatch.setattr(live, "BASELINE_S", 0.0)
    monkeypatch.setattr(runner, "product", counted)
    live.multiply(llm, 1000, nothing)
    assert sum(computed) == 1000


def test_so_many_tokens_are_generated_and_no_page_is_kept(llm: LLM) -> None:
    before = llm.engine.tally.snapshot()
    live.generate(llm, 100, nothing)  # more than the context holds: two answers
    after = llm.engine.tally.snapshot()
    assert after.decode_tokens - before.decode_tokens == 98  # the first of each comes with its prompt
    assert llm.engine.pages.available == llm.engine.pages.count


def test_a_scalar_baseline_that_takes_too_long_is_none(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BASELINE_S", 0.0)
    assert live.generate(llm, 2, nothing).speedup is None
    assert live.multiply(llm, 2, nothing).speedup is None


@pytest.mark.parametrize("name", live.TESTS)
def test_work_ends_when_it_is_told_to(llm: LLM, name: str) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise BusyError("enough")

    with pytest.raises(BusyError, match="enough"):
        live.TESTS[name](llm, 100_000, check)
    assert llm.generate("Hello", max_tokens=3).usage.completion_tokens <= 3


def test_steps_by_another_set_give_the_same_bits_and_the_own_set_comes_back(llm: LLM) -> None:
    runner = live._runner(llm.engine)
    ids = llm.tokenize("the and in an")
    expected = llm.logits(ids)
    for isa in SETS:
        before = runner.isa
        llm.engine.between(lambda isa=isa: runner._core.use(isa)).result()  # type: ignore[misc]
        assert runner.isa == isa
        assert np.array_equal(llm.logits(ids), expected)
        llm.engine.between(lambda before=before: runner._core.use(before)).result()  # type: ignore[misc]
    with runner.by("scalar"):
        assert runner.isa == "scalar"
    assert runner.isa == llm.info.isa


def test_a_closed_model_takes_no_work(tmp_path: Path) -> None:
    llm = LLM(tiny(tmp_path / "small.gguf"), threads=1)
    llm.close()
    with pytest.raises(BusyError, match="closed"):
        live.multiply(llm, 1, nothing)
