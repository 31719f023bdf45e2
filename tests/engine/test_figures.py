"""Figures are read while the engine's thread goes on: what they say was so at one moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.asking import PROMPT, asked, work_off
from tests.engine.fake import Fake
from woolly.engine import Engine, Sequence


class Restless(deque[Any]):
    """A queue of the engine that changes while another thread looks at it: each look lets the engine's thread go on."""

    def __init__(self, inside: Any, change: Callable[[], None]) -> None:
        super().__init__(inside)
        self.change = change

    def __iter__(self) -> Iterator[Any]:
        self.change()
        return super().__iter__()

    def __len__(self) -> int:
        self.change()
        return super().__len__()


def with_queues(engine: Engine, change: Callable[[], None]) -> None:
    for name in ("running", "waiting"):
        queue = Restless(getattr(engine.scheduler, name), change)
        setattr(engine.scheduler, name, queue)
        setattr(engine, name, queue)


def crowd(engine: Engine, count: int) -> list[Sequence]:
    sequences = [asked([number, *PROMPT], tokens=30) for number in range(count)]
    for sequence in sequences:
        engine.add(sequence)
    engine.take_inbox()
    return sequences


def test_figures_look_at_no_queue_that_the_engine_changes() -> None:
    engine, looks = Engine(Fake(sequences=2)), []
    crowd(engine, 4)
    engine.turn()
    with_queues(engine, lambda: looks.append(1))
    figures = engine.figures()
    assert (figures.running, figures.waiting) == (2, 2)
    assert not looks
    engine.remembered()
    assert not looks


def test_a_sequence_that_begins_while_figures_are_read_is_counted_once() -> None:
    engine = Engine(Fake(sequences=4))
    crowd(engine, 4)
    with_queues(engine, lambda: None)
    looks = iter((False, True, *(False,) * 99))  # the step begins between the first look and the second
    for queue in (engine.scheduler.running, engine.scheduler.waiting):
        queue.change = lambda: next(looks) and engine.scheduler.schedule()  # type: ignore[union-attr]
    figures = engine.figures()
    assert figures.running + figures.waiting == 4
    assert figures.missing == 4 * (len(PROMPT) + 1)


def test_a_sequence_that_comes_from_the_disk_while_figures_are_read_is_counted_once() -> None:
    engine = Engine(Fake())
    (one,) = crowd(engine, 1)
    engine.scheduler.waiting.remove(one)

    class Disk:
        """It has a sequence that goes to the scheduler as soon as it has been looked at."""

        class disk_store:
            counts = staticmethod(lambda: None)

        @property
        def sequences(self) -> tuple[Sequence, ...]:
            engine.scheduler.enter(one)
            return (one,)

    engine.disk_io = Disk()  # type: ignore[assignment]
    assert engine.figures().waiting == 1


@pytest.mark.parametrize("windows", [(0,), (0, 8)])
def test_no_page_is_free_and_idle_in_the_same_figures(windows: tuple[int, ...]) -> None:
    engine = Engine(Fake(windows=windows))
    crowd(engine, 3)
    seen = []
    while engine.running or engine.waiting:
        engine.turn()
        figures = engine.figures()
        groups = engine.pages.groups
        assert figures.free == sum(len(group.free) for group in groups)
        assert figures.idle == sum(len(group.idle) for group in groups)
        seen.append(figures.free + figures.idle)
    work_off(engine)
    assert max(seen) == engine.figures().pages > min(seen)
