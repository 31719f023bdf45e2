"""The counts of an engine equal those that a test makes itself."""

from __future__ import annotations

import threading

import pytest

from tests.engine.fake import Fake
from woolly.engine import Engine, Sequence
from woolly.engine.tally import GAPS_S, RECENT, Tally
from woolly.errors import BusyError
from woolly.request import SubmitOptions


def test_tokens_of_decoding_steps_are_counted_and_those_of_prompts_are_not() -> None:
    engine = Engine(Fake())
    for length in (20, 3):
        engine.add(Sequence(range(length), limit=length + 5))
    while engine.inbox.qsize() or engine.running or engine.waiting:
        engine.turn()
    tally = engine.tally
    assert sum(tally.gaps) == len(tally.recent) == 2 * 4
    assert tally.decode_tokens <= 2 * 4
    assert tally.decode_steps <= tally.decode_tokens
    assert tally.steps > tally.decode_steps > 0
    assert tally.decode_s > 0
    engine.close()


def test_remembered_pages_that_had_to_go_are_counted() -> None:
    engine = Engine(Fake(pages=8))
    for salt in (b"a", b"b", b"c"):
        engine.add(Sequence(range(24), limit=25, options=SubmitOptions(salt)))
        while engine.inbox.qsize() or engine.running or engine.waiting:
            engine.turn()
    assert engine.pages.evictions == 10  # eight pages, and three times six are remembered
    engine.close()


def test_gaps_fall_between_their_borders_and_only_the_last_are_kept_one_by_one() -> None:
    tally = Tally()
    for seconds in (GAPS_S[0], GAPS_S[0] * 1.01, 1e9):
        tally.gaps_of(1, seconds)
    assert (tally.gaps[0], tally.gaps[1], tally.gaps[-1]) == (1, 1, 1)
    for number in range(2 * RECENT):
        tally.gaps_of(1, float(number))
    assert sorted(tally.recent) == [float(number) for number in range(RECENT, 2 * RECENT)]
    assert sum((tally + tally.snapshot()).gaps) == 2 * sum(tally.gaps)


def test_tokens_that_come_together_share_the_time_since_the_step_before() -> None:
    tally = Tally()
    tally.gaps_of(4, 0.008)
    assert tally.recent == [0.002] * 4
    assert (tally.gaps[1], tally.gap_s) == (4, 0.008)


def test_work_between_two_steps_is_done_by_the_engines_thread() -> None:
    engine = Engine(Fake())
    engine.start()
    assert engine.between(lambda: threading.current_thread().name).result(60) == "woolly-engine"
    with pytest.raises(ZeroDivisionError):
        engine.between(lambda: 1 // 0).result(60)
    assert engine.between(lambda: 1).result(60) == 1
    engine.close()
    with pytest.raises(BusyError):
        engine.between(lambda: 1)
