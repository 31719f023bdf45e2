"""F25: a step that never comes back, or steps that fail in a row, break their own model, and nobody waits for ever."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.engine.asking import PROMPT, WARM, alone, answer, asked, end_of, said
from tests.engine.fake import Fake, Outputs
from woolly.device import StepSize
from woolly.engine import Engine
from woolly.engine.watchdog import FIRST_S, FIRST_STEPS, LEAST_S, TIMES, GivenUp, Watchdog
from woolly.errors import NativeError
from woolly.request import Failed

PATIENCE_S = 60.0


class Hanging(Fake):
    """A runner whose second step returns only when `let_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.let_go = threading.Event()
        self.closed = threading.Event()

    def run(self, size: StepSize) -> Outputs | None:
        self.steps += 1
        if self.steps == 2:
            assert self.let_go.wait(PATIENCE_S)
        return super().run(size)

    def close(self) -> None:
        self.closed.set()


@contextmanager
def hanging() -> Iterator[tuple[Engine, Hanging]]:
    runner = Hanging()
    engine = Engine(runner)
    engine.watchdog = Watchdog(engine._give_up, least_s=0.3, first_s=0.3, look_s=0.01)
    engine.start()
    try:
        yield engine, runner
    finally:
        runner.let_go.set()
        engine.close()


def test_f25_a_step_that_never_comes_back_fails_all_that_wait_for_it() -> None:
    with hanging() as (engine, _):
        streams = [engine.add(asked(PROMPT, seed=seed)) for seed in range(6)]  # two more than run at once
        for stream in streams:
            last = list(stream)[-1]
            assert isinstance(last, Failed) and "has not come back" in last.error.message
        assert engine.broken is not None
        with pytest.raises(NativeError, match="given up"):
            engine.add(asked(PROMPT))
        with pytest.raises(NativeError, match="given up"):
            engine.between(lambda: None)


def test_f25_another_model_goes_on_meanwhile() -> None:
    with hanging() as (engine, _):
        assert isinstance(list(engine.add(asked(PROMPT)))[-1], Failed)
        events = answer(Engine(Fake()), asked(PROMPT))  # needs a turn of the processor
        assert said(events) == alone(PROMPT, WARM, 1, len(PROMPT) + 10, frozenset(), 32)


def test_f25_a_step_that_was_given_up_frees_its_model_when_it_comes_back() -> None:
    with hanging() as (engine, runner):
        events = list(engine.add(asked(PROMPT)))
        engine.close()  # does not wait for the step
        assert not runner.closed.is_set()
        runner.let_go.set()
        assert runner.closed.wait(PATIENCE_S)
        assert isinstance(events[-1], Failed)


def test_f25_two_steps_that_fail_in_a_row_break_the_engine() -> None:
    class Failing(Fake):
        def run(self, size: StepSize) -> Outputs | None:
            raise RuntimeError("a worker died")

    engine = Engine(Failing())
    assert isinstance(answer(engine, asked(PROMPT))[-1], Failed)
    assert engine.broken is None
    one, two = engine.add(asked(PROMPT)), engine.add(asked(PROMPT, seed=2))
    engine.turn()
    assert isinstance(list(one)[-1], Failed) and isinstance(list(two)[-1], Failed)
    assert engine.broken is not None and "a worker died" in engine.broken.message
    with pytest.raises(NativeError, match="a worker died"):
        engine.add(asked(PROMPT))


def test_a_step_that_works_between_two_that_fail_is_no_row() -> None:
    class EverySecond(Fake):
        steps = 0

        def run(self, size: StepSize) -> Outputs | None:
            self.steps += 1
            if self.steps % 2:
                raise RuntimeError("now and then")
            return super().run(size)

    engine = Engine(EverySecond())
    for _ in range(4):
        assert isinstance(answer(engine, asked(PROMPT, tokens=1))[-1], Failed)
        assert end_of(answer(engine, asked(PROMPT, tokens=1))).reason == "length"
    assert engine.broken is None


def test_the_limit_follows_what_steps_take() -> None:
    dog = Watchdog(lambda seconds: None)
    assert dog.limit_s() == FIRST_S  # a large model's first prompt on a slow machine
    dog._steps.extend([0.01] * FIRST_STEPS)
    assert dog.limit_s() == LEAST_S
    dog._steps.extend([2.0] * 2 * FIRST_STEPS)
    assert dog.limit_s() == TIMES * 2.0


def test_steps_that_come_back_in_time_are_never_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up: list[float] = []
    dog = Watchdog(given_up.append, least_s=1.0, first_s=1.0, look_s=0.005)
    clock, looks = [0.0], itertools.count()
    monkeypatch.setattr("woolly.engine.watchdog.perf_counter", lambda: clock[0])

    class Over:
        """The event that the watchdog waits on: 300 steps begin and end meanwhile, then none runs, then one hangs."""

        def wait(self, seconds: float) -> bool:
            look = next(looks)
            if look < 600:
                dog.end() if look % 2 else dog.begin()
            elif look == 1000:
                dog.begin()
            assert look < 2000, "nobody gave it up"
            clock[0] += seconds
            return False

    monkeypatch.setattr(dog, "_over", Over())
    dog._look()
    assert next(looks) > 1000 and 1.0 < given_up[0] < 1.1
    with pytest.raises(GivenUp):
        dog.end()


def test_the_time_that_a_process_was_stopped_is_no_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after SIGSTOP and SIGCONT: the clock has gone on, the step has not."""
    given_up: list[float] = []
    clock, looks = [0.0], iter([1.0, 1.0, 600.0, 1.0, None])
    dog = Watchdog(given_up.append, first_s=LEAST_S)
    monkeypatch.setattr("woolly.engine.watchdog.perf_counter", lambda: clock[0])

    class Over:
        def wait(self, seconds: float) -> bool:
            passed = next(looks)
            clock[0] += passed or 0.0
            return passed is None

    monkeypatch.setattr(dog, "_over", Over())
    clock[0] = 1.0
    dog.begin()
    dog._look()
    assert not given_up
