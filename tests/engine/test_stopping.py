"""Stopping: a cancelled or closed answer ends at once, and its pages are free."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.engine.asking import PROMPT, answer, asked, end_of, free_pages, said, work_off
from tests.engine.fake import Fake, Outputs
from woolly.device import StepSize
from woolly.engine import Engine, Scores, Sequence
from woolly.errors import BusyError
from woolly.request import End, Start, Text


def test_a_cancelled_answer_is_gone_before_the_next_step_and_its_pages_are_free() -> None:
    engine = Engine(Fake())
    one, other = engine.add(asked(PROMPT, tokens=100)), engine.add(asked([7, *PROMPT]))
    for _ in range(4):
        engine.turn()
    one.cancel()
    engine.turn()
    assert [sequence.answer.stream for sequence in engine.running] == [other]
    events = list(one)
    assert end_of(events).reason == "cancelled"
    assert end_of(events).usage.completion_tokens == len(said(events))
    work_off(engine)
    assert end_of(list(other)).reason == "length"
    assert free_pages(engine)


def test_a_waiting_answer_can_be_cancelled() -> None:
    engine = Engine(Fake(sequences=1))
    engine.add(asked(PROMPT))
    waiting = engine.add(asked(PROMPT))
    engine.turn()
    waiting.cancel()
    engine.turn()
    assert [type(event) for event in waiting] == [End]


class Stoppable(Fake):
    """A runner whose step runs until it is stopped; `begun` is set when the step begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.stopped, self.runs = threading.Event(), threading.Event(), 0

    def run(self, size: StepSize) -> Outputs | None:
        self.runs += 1
        self.begun.set()
        assert self.stopped.wait(60), "nobody stopped the step"
        self.stopped.clear()
        return None

    def stop(self) -> None:
        self.stopped.set()


def test_cancelling_the_only_answer_stops_the_step_that_computes_it() -> None:
    runner = Stoppable()
    engine = Engine(runner)
    engine.start()
    stream = engine.add(asked(PROMPT))
    runner.begun.wait(60)
    stream.cancel()
    assert [type(event) for event in stream] == [Start, End]
    assert runner.runs == 1
    engine.close()
    assert runner.closed


def test_closing_stops_the_step_and_ends_every_answer() -> None:
    runner = Stoppable()
    engine = Engine(runner)
    engine.start()
    streams = [engine.add(asked(PROMPT)) for _ in range(3)]
    runner.begun.wait(60)
    engine.close()
    for stream in streams:
        assert end_of(list(stream)).reason == "cancelled"
    assert runner.closed
    engine.close()
    with pytest.raises(BusyError, match="closed"):
        engine.add(asked(PROMPT))


def test_a_stopped_step_advances_nothing() -> None:
    class Sometimes(Fake):
        turn = 0

        def run(self, size: StepSize) -> Outputs | None:
            self.turn += 1
            outputs = super().run(size)
            return outputs if self.turn % 3 else None

    for carries in (False, True):
        expected = said(answer(Engine(Fake(slots=carries)), asked(PROMPT)))
        assert said(answer(Engine(Sometimes(slots=carries)), asked(PROMPT))) == expected


def test_leaving_the_loop_cancels_within_a_step() -> None:
    engine = Engine(Fake(context=100_000, pages=30_000))
    engine.start()
    for event in engine.add(asked(PROMPT, tokens=90_000)):
        if isinstance(event, Text):
            break
    rows = np.zeros((1, 32), np.float32)
    list(engine.add(Sequence([1], limit=1, scores=Scores(rows))))  # a turn later
    assert not engine.running
    assert free_pages(engine)
    engine.close()
