"""Who computes what next: running before waiting, oldest first, within bounds; a shortage puts the youngest back."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from woolly.engine import Sequence, Stream
from woolly.engine.pages import Pages
from woolly.engine.scheduler import Pace, Step, schedule
from woolly.plan import Bounds
from woolly.request import Text


class Desk:
    """The queues of an engine, without the engine."""

    def __init__(self, *, rows: int = 16, wants: int = 4, sequences: int = 4, pages: int = 64) -> None:
        self.bounds = Bounds(rows, wants, sequences, 1024)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.pages = Pages([pages], 4)

    def add(self, length: int, *, first: int = 0, scored: bool = False) -> Sequence:
        scores = np.zeros((length, 1), np.float32) if scored else None
        tokens = range(first, first + length)
        sequence = Sequence(tokens, limit=length + (0 if scored else 100), scores=scores)
        sequence.stream = Stream(lambda: None)
        self.waiting.append(sequence)
        return self.waiting[-1]

    def step(self) -> list[tuple[Sequence, int]]:
        """Schedule, and compute what was scheduled; a sequence that has all computed gets one token more."""
        return [(span.sequence, span.count) for span in self.spans()]

    def spans(self) -> Step:
        step = schedule(self.waiting, self.running, self.pages, self.bounds, self.bounds.rows)
        for span in step:
            sequence = span.sequence
            sequence.computed += span.count
            sequence.wanted = span.want.stop
            self.pages.computed(sequence)
            if sequence.computed == len(sequence.tokens):
                sequence.tokens.append(7)
        return step


def test_a_span_says_which_outputs_are_wanted() -> None:
    desk = Desk(rows=16)
    desk.add(40)
    assert [span.want for _ in range(4) for span in desk.spans()] == [
        range(39, 39),
        range(39, 39),
        range(39, 40),
        range(40, 41),
    ]
    scored = Desk(rows=16, wants=3)
    scored.add(8, scored=True)
    assert [span.want for _ in range(3) for span in scored.spans()] == [range(3), range(3, 6), range(6, 8)]


def test_a_long_prompt_is_handed_out_in_chunks() -> None:
    desk = Desk(rows=16)
    one = desk.add(40)
    assert [desk.step() for _ in range(5)] == [[(one, 16)], [(one, 16)], [(one, 8)], [(one, 1)], [(one, 1)]]


def test_running_sequences_come_first_and_waiting_ones_share_what_is_left() -> None:
    desk = Desk(rows=16)
    one, two = desk.add(10), desk.add(10, first=100)
    assert desk.step() == [(one, 10), (two, 6)]
    three = desk.add(20, first=200)
    assert desk.step() == [(one, 1), (two, 4), (three, 11)]


def test_nobody_overtakes() -> None:
    desk = Desk(pages=8)
    large, small = desk.add(40), desk.add(4, first=100)
    assert (
        desk.step() == []
    )  # the large one does not fit the pool (the engine would not have taken it), the small one waits
    assert list(desk.waiting) == [large, small]


def test_a_step_has_no_more_sequences_and_wanted_rows_than_its_bounds() -> None:
    desk = Desk(sequences=2)
    sequences = [desk.add(2, first=10 * i) for i in range(3)]
    assert desk.step() == [(sequences[0], 2), (sequences[1], 2)]
    assert desk.step() == [(sequences[0], 1), (sequences[1], 1)]
    desk = Desk(wants=2)
    sequences = [desk.add(3, first=10 * i) for i in range(3)]
    assert desk.step() == [(sequences[0], 3), (sequences[1], 3)]


def test_scores_take_the_wanted_rows_that_are_left() -> None:
    desk = Desk(rows=4, wants=2)
    one = desk.add(6, first=100)
    assert desk.step() == [(one, 4)]
    scored = desk.add(9, scored=True)
    assert desk.step() == [(one, 2), (scored, 1)]
    assert desk.step() == [(one, 1), (scored, 1)]


def test_scores_are_asked_for_row_by_row() -> None:
    desk = Desk(rows=16, wants=3)
    one = desk.add(8, scored=True)
    assert [desk.step() for _ in range(3)] == [[(one, 3)], [(one, 3)], [(one, 2)]]


def test_a_shortage_puts_the_youngest_back_and_the_oldest_goes_on() -> None:
    desk = Desk(pages=6)
    old, young = desk.add(8), desk.add(8, first=100)
    assert desk.step() == [(old, 8), (young, 8)]
    for _ in range(4):
        assert desk.step() == [(old, 1), (young, 1)]  # each with its third page
    assert desk.step() == [(old, 1)]
    assert desk.running == [old] and list(desk.waiting) == [young]
    assert (young.computed, young.page_count) == (0, 0)
    assert len(young.tokens) == 13  # what it has said stays said


def test_one_that_was_put_back_is_the_first_to_return_and_finds_its_pages() -> None:
    desk = Desk(pages=6)
    old, young = desk.add(8), desk.add(8, first=100)
    for _ in range(6):
        desk.step()
    late = desk.add(2, first=200)
    desk.running.remove(old)
    desk.pages.release(old)
    step = desk.step()
    assert [sequence for sequence, _ in step] == [young, late]
    assert young.page_count == 4
    assert step[0][1] < 13  # some of its pages were still remembered


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_the_pace_stays_within_its_bounds(rows: int) -> None:
    pace = Pace(rows)
    assert 1 <= pace.rows <= rows
    for seconds in (1e-9, 1e3, 1e-9):
        for _ in range(20):
            pace.measure(pace.rows, seconds)
        assert min(Pace.FEW, rows) <= pace.rows <= rows


def test_the_pace_finds_the_rows_that_take_the_time_of_a_step() -> None:
    pace = Pace(512)
    for _ in range(30):
        pace.measure(pace.rows, 0.01 + pace.rows / 1000)  # 190 rows take 0.2 s
    assert 160 <= pace.rows <= 190


def test_single_tokens_tell_the_pace_nothing() -> None:
    pace = Pace(512)
    before = pace.rows
    for _ in range(100):
        pace.measure(1, 0.5)
    assert pace.rows == before


def test_a_sequence_whose_reader_is_behind_gives_way_and_keeps_its_pages() -> None:
    desk = Desk(sequences=1)
    slow, next_ = desk.add(4), desk.add(4, first=50)
    desk.step()
    slow.stream.most = 1
    slow.stream.put(Text("a", (7,)))
    assert [sequence for sequence, _ in desk.step()] == [next_]
    assert slow.page_count
    next(slow.stream)
    assert [sequence for sequence, _ in desk.step()] == [slow]


def test_a_model_that_is_not_causal_computes_a_sequence_whole_or_not_yet() -> None:
    pages, waiting, running = Pages([64], 4, reuse=False), deque[Sequence](), list[Sequence]()
    for length in (10, 8, 6):
        sequence = Sequence(range(length), limit=length + 1)
        sequence.stream = Stream(lambda: None)
        waiting.append(sequence)
    step = schedule(waiting, running, pages, Bounds(16, 4, 4, 64), 16, whole=True)
    assert [span.count for span in step] == [10]  # the next would have to be cut
    running.clear()
    step = schedule(waiting, running, pages, Bounds(16, 4, 4, 64), 16, whole=True)
    assert [span.count for span in step] == [8, 6]
