"""Failures: a step, a row of logits, a text or the engine itself goes wrong, and nobody waits forever."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.engine.asking import BYTES, PROMPT, WARM, alone, answer, asked, end_of, free_pages, said, work_off
from tests.engine.fake import Fake, Outputs
from woolly.device import StepSize
from woolly.engine import AnswerOptions, Engine, Sequence, Stream
from woolly.errors import NativeError
from woolly.request import Failed
from woolly.text import TextStream


class Failing(Fake):
    def __init__(self, error: Callable[[], Exception]) -> None:
        super().__init__()
        self.error: Callable[[], Exception] | None = error

    def run(self, size: StepSize) -> Outputs | None:
        if self.error is not None:
            raise self.error()
        return super().run(size)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyError("a bug"), "native_error", "a bug"),
        (MemoryError("gone"), "not_enough_memory", "there is not enough memory for a step of the model"),
        (RuntimeError("can't start new thread"), "not_enough_memory", "there is not enough memory"),
    ],
)
def test_f09_a_failing_step_fails_its_answers_and_the_engine_goes_on(error: Exception, code: str, message: str) -> None:
    runner = Failing(lambda: error)
    engine = Engine(runner)
    events = answer(engine, asked(PROMPT))
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code == code and message in events[-1].error.message
    assert free_pages(engine)
    runner.error = None
    assert end_of(answer(engine, asked(PROMPT))).reason == "length"


def test_steps_without_memory_break_no_engine() -> None:
    runner = Failing(MemoryError)
    engine = Engine(runner)
    for _ in range(5):
        assert isinstance(answer(engine, asked(PROMPT))[-1], Failed)
    runner.error = None
    assert engine.broken is None and end_of(answer(engine, asked(PROMPT))).reason == "length"


def test_an_error_of_the_core_is_told_as_it_is() -> None:
    error = NativeError("the batch is not sound")
    events = answer(Engine(Failing(lambda: error)), asked(PROMPT))
    assert events[-1] == Failed(error)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_f26_logits_that_are_not_finite_fail_their_own_answer_alone(wrong: float) -> None:
    class Poisoned(Fake):
        def run(self, size: StepSize) -> Outputs | None:
            outputs = super().run(size)
            if outputs is not None and size.spans == 2 and self.batch.spans[1, 2] > 16:
                outputs["logits"][1, 5] = wrong
            return outputs

    engine = Engine(Poisoned())
    well, ill = engine.add(asked(PROMPT)), engine.add(asked(PROMPT, seed=2))
    work_off(engine)
    events = list(ill)
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code == "generation_error"
    assert said(events) == alone(PROMPT, WARM, 2, 99, frozenset(), 32)[: len(said(events))]
    assert said(list(well)) == alone(PROMPT, WARM, 1, len(PROMPT) + 10, frozenset(), 32)
    assert free_pages(engine)


def test_a_bug_in_the_last_piece_of_text_leaves_nobody_waiting() -> None:
    class Broken(TextStream):
        def flush(self) -> str:
            raise ValueError("a bug")

    sequence = Sequence([65], limit=4, answer=AnswerOptions(text=Broken(BYTES)))
    events = answer(Engine(Fake()), sequence)
    assert isinstance(events[-1], Failed) and "a bug" in events[-1].error.message


def test_a_bug_in_the_engine_itself_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Fake())
    streams: list[Stream] = []
    first = threading.Event()

    def broken(*_: object, **__: object) -> None:
        first.wait(60)
        raise AssertionError("a bug")

    monkeypatch.setattr("woolly.engine.engine.Scheduler.schedule", broken)
    engine.start()
    streams = [engine.add(asked(PROMPT)) for _ in range(3)]
    first.set()
    for stream in streams:
        assert isinstance(list(stream)[-1], Failed)
    engine.close()
    with pytest.raises(NativeError, match="a bug"):
        engine.add(asked(PROMPT))
