"""The order of computing: answers before prompts, prompts in fair shares, within bounds; where pages are short, the
youngest sequence is put back."""

from __future__ import annotations

import numpy as np
import pytest

from woolly.engine import Scores, Sequence, Stream
from woolly.engine.cache.pages import Pages
from woolly.engine.scheduler import Pace, Scheduler, Step
from woolly.engine.shares import KEYS, Shares
from woolly.plan import Bounds
from woolly.request import SubmitOptions, Text


class Desk(Scheduler):
    """A scheduler without its engine."""

    def __init__(self, *, rows: int = 16, wants: int = 4, sequences: int = 4, pages: int = 64) -> None:
        super().__init__(Pages([pages], 4), Bounds(rows, wants, sequences, 1024))

    def add(self, length: int, *, first: int = 0, scored: bool = False, key: str = "") -> Sequence:
        scores = Scores(np.zeros((length, 1), np.float32)) if scored else None
        tokens = range(first, first + length)
        limit, options = length + (0 if scored else 100), SubmitOptions(key=key)
        sequence = Sequence(tokens, limit=limit, scores=scores, options=options)
        sequence.answer.stream = Stream(lambda: None)
        self.enter(sequence)
        return sequence

    def step(self) -> list[tuple[Sequence, int]]:
        """Schedule a step and compute it; a sequence all of whose tokens are computed gets one token more."""
        return [(span.sequence, span.count) for span in self.spans()]

    def spans(self) -> Step:
        step = self.schedule()
        for span in step:
            sequence = span.sequence
            sequence.computed += span.count
            sequence.wanted = span.want.stop
            self.pages.computed(sequence)
            if sequence.computed == len(sequence.tokens):
                sequence.tokens.append(7)
        return step

    def drop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.pages.release(sequence)


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


def test_answers_have_their_rows_in_every_step_and_prompts_share_what_is_left() -> None:
    desk = Desk(rows=16)
    one, two = desk.add(10), desk.add(11, first=100)
    assert desk.step() == [(one, 10), (two, 6)]
    three = desk.add(40, first=200)
    assert desk.step() == [(one, 1), (two, 5), (three, 10)]
    for _ in range(2):
        assert desk.step() == [(one, 1), (two, 1), (three, 14)]


def test_an_answer_behind_a_long_prompt_does_not_stand_still() -> None:
    desk = Desk(rows=16)
    long, short = desk.add(200), desk.add(3, first=500)
    assert desk.step() == [(short, 3), (long, 13)]  # the shortest first
    for _ in range(10):
        assert desk.step() == [(short, 1), (long, 15)]


def test_the_shortest_prompt_comes_first_but_a_long_one_is_overtaken_by_no_more_than_its_own_length() -> None:
    desk = Desk(rows=8, wants=64, sequences=64, pages=512)
    long = desk.add(40)
    overtaking = 0
    for first in range(1000, 100000, 50):  # in every step a short prompt arrives that would fill the step
        desk.add(8, first=first)
        step = desk.spans()
        if step[-1].sequence is long:
            break
        overtaking += step[-1].count
        for sequence in [span.sequence for span in step]:
            desk.drop(sequence)
    assert 24 <= overtaking <= 40


def test_keys_get_equal_shares_whatever_they_ask_for() -> None:
    desk = Desk(rows=16, wants=64, sequences=64, pages=4096)
    for number in range(20):
        desk.add(100, first=1000 * number, key="many")
    one = desk.add(300, first=50_000, key="one")
    rows = {"many": 0, "one": 0}
    while one.computed < 300:
        for span in desk.spans():
            if span.count > 1:
                rows[span.sequence.options.key] += span.count
    assert abs(rows["many"] - rows["one"]) <= 32


def test_a_key_that_comes_late_has_saved_nothing_and_owes_nothing() -> None:
    shares = Shares()
    old, new = (Sequence(range(1000), limit=2000, options=SubmitOptions(key=key)) for key in ("old", "new"))
    shares.give(old, 500)
    assert shares.line([old, new]) == [new, old]
    shares.give(new, 100)
    assert shares.line([old, new]) == [new, old]
    shares.give(new, 450)
    assert shares.line([old, new]) == [old, new]


def test_a_bounded_number_of_keys_is_remembered() -> None:
    shares = Shares()
    last = [Sequence([1], limit=2, options=SubmitOptions(key=str(number))) for number in range(2 * KEYS)]
    for one in last:
        shares.give(one, 1)
    assert len(shares._had) == KEYS
    assert shares.line(last[::-1])[-KEYS:] == last[: KEYS - 1 : -1]


def test_whoever_does_not_fit_keeps_out_all_behind_it() -> None:
    desk = Desk(pages=8)
    small, large = desk.add(20), desk.add(24, first=100)
    assert desk.step() == [(small, 16)]
    late = desk.add(23, first=200)
    assert desk.step() == [(small, 4)]
    assert list(desk.waiting) == [large, late]
    desk.drop(small)
    assert desk.step() == [(large, 16)]


def test_what_a_running_prompt_will_need_is_not_given_to_another() -> None:
    desk = Desk(pages=16)
    one, two = desk.add(40), desk.add(41, first=100)  # 10 and 11 pages
    for _ in range(10):
        assert two not in [sequence for sequence, _ in desk.step()]
    assert one.computed == len(one.tokens) - 1 > 40


def test_equal_beginnings_are_computed_once() -> None:
    desk = Desk(rows=8, sequences=4, pages=64)
    one, two, three = desk.add(30), desk.add(31), desk.add(32, first=500)
    rows = {one: 0, two: 0, three: 0}
    for _ in range(12):
        for sequence, count in desk.step():
            rows[sequence] += count
    assert two.computed >= 31
    assert rows[two] - (two.computed - 31) == 3  # 28 tokens are whole pages that the first has filled
    assert rows[three] - (three.computed - 32) == 32


def test_who_waits_for_a_page_goes_on_alone_if_the_other_goes() -> None:
    desk = Desk(rows=8, sequences=4, pages=64)
    one, two = desk.add(30), desk.add(31)
    assert [desk.step() for _ in range(2)] == [[(one, 8)], [(one, 8)]]
    desk.drop(one)
    assert desk.step() == [(two, 8)]
    assert two.computed == 24  # the pages that were filled are not filled again


def test_nobody_waits_for_a_page_of_one_whose_reader_is_behind() -> None:
    desk = Desk(rows=8, sequences=4, pages=64)
    one, two = desk.add(30), desk.add(31)
    desk.step()
    one.answer.stream.most = 1
    one.answer.stream.put(Text("a", (7,)))
    assert desk.step() == [(two, 8)]


def test_sequences_of_another_salt_share_no_page() -> None:
    desk = Desk(rows=16, sequences=4, pages=64)
    one, two = desk.add(10), desk.add(10)
    two.options = SubmitOptions(b"other")
    assert desk.step() == [(one, 10), (two, 6)]


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


def test_l09_a_shortage_puts_the_youngest_back_and_the_oldest_goes_on() -> None:
    desk = Desk(pages=6)
    old, young = desk.add(8), desk.add(8, first=100)
    assert desk.step() == [(old, 8), (young, 8)]
    for _ in range(4):
        assert desk.step() == [(old, 1), (young, 1)]  # each with its third page
    assert desk.step() == [(old, 1)]
    assert desk.running == [old] and list(desk.waiting) == [young]
    assert (young.computed, young.page_count) == (0, 0)
    assert len(young.tokens) == 13  # tokens that were given out are kept


def test_l09_one_that_was_put_back_is_the_first_to_return_and_finds_its_pages() -> None:
    desk = Desk(pages=6)
    old, young = desk.add(8), desk.add(8, first=100)
    for _ in range(6):
        desk.step()
    late = desk.add(2, first=200)
    desk.drop(old)
    step = desk.step()
    assert [sequence for sequence, _ in step] == [young, late]
    assert young.page_count == 4
    assert step[0][1] < 13  # some of its pages were still remembered


@pytest.mark.parametrize("rows", [1, 7, 512])
@pytest.mark.parametrize("with_decodes", [False, True])
def test_the_pace_stays_within_its_bounds(rows: int, with_decodes: bool) -> None:
    pace = Pace(rows)
    assert 1 <= pace.rows(with_decodes=with_decodes) <= rows
    for seconds in (1e-9, 1e3, 1e-9):
        for _ in range(20):
            pace.measure(pace.rows(with_decodes=with_decodes), seconds, with_decodes=with_decodes)
        assert (
            min(Pace.LEAST_WITH_DECODES if with_decodes else Pace.LEAST_ALONE, rows)
            <= pace.rows(with_decodes=with_decodes)
            <= rows
        )


def test_the_pace_finds_the_rows_that_take_the_time_of_a_step() -> None:
    pace = Pace(512)
    for _ in range(30):
        rows = pace.rows(with_decodes=False)
        pace.measure(rows, 0.01 + rows / 1000, with_decodes=False)  # 190 rows take 0.2 s
    assert 160 <= pace.rows(with_decodes=False) <= 190


@pytest.mark.parametrize("others", [1, 7, 8, 13])
def test_prompts_fill_a_step_up_to_a_multiple_of_the_rows_that_share_a_pass(others: int) -> None:
    pace = Pace(512)
    pace.measure(64, 0.2, with_decodes=False)  # 32 rows take 0.1 s
    rows = pace.rows(with_decodes=True, others=others)
    assert (rows + others) % 8 == 0
    assert 24 < rows <= 32


@pytest.mark.parametrize("answers_s", [0.005, 0.08, 0.2])
def test_a_prompt_that_comes_lengthens_the_gap_of_answers_by_its_own_time_alone(answers_s: float) -> None:
    pace = Pace(512)
    for _ in range(10):
        pace.measure(0, answers_s, with_decodes=True)
    gaps = []
    for step in range(100):  # a row of a long prompt takes longer the further it is
        rows = pace.rows(with_decodes=True)
        gaps.append(answers_s + rows * (0.0005 + step * 0.00001))
        pace.measure(rows, gaps[-1], with_decodes=True)
    assert max(gaps) <= answers_s + 1.1 * Pace.WITH_DECODES_S
    assert sum(gaps) / 100 >= answers_s + 0.7 * Pace.WITH_DECODES_S


def test_steps_of_few_rows_tell_the_pace_nothing_about_prompts() -> None:
    pace = Pace(512)
    before = pace.rows(with_decodes=False)
    for _ in range(100):
        pace.measure(1, 0.5, with_decodes=False)
        pace.measure(0, 0.5, with_decodes=True)
    assert pace.rows(with_decodes=False) == before


def test_a_sequence_whose_reader_is_behind_gives_way_and_keeps_its_pages() -> None:
    desk = Desk(sequences=1)
    slow, next_ = desk.add(4), desk.add(4, first=50)
    desk.step()
    slow.answer.stream.most = 1
    slow.answer.stream.put(Text("a", (7,)))
    assert [sequence for sequence, _ in desk.step()] == [next_]
    assert slow.page_count
    next(slow.answer.stream)
    assert [sequence for sequence, _ in desk.step()] == [slow]


def test_a_model_that_is_not_causal_computes_a_sequence_whole_or_not_yet() -> None:
    scheduler = Scheduler(Pages([64], 4, reuse=False), Bounds(16, 4, 4, 64), single_step=True)
    for length in (10, 8, 6):
        sequence = Sequence(range(length), limit=length + 1)
        sequence.answer.stream = Stream(lambda: None)
        scheduler.enter(sequence)
    assert [span.count for span in scheduler.schedule()] == [6, 8]  # the next would have to be cut
    scheduler.running.clear()
    assert [span.count for span in scheduler.schedule()] == [10]
