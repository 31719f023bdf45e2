"""The stage for a text with a gap, by cases that one can count, and what is told of how likely drawn tokens were."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.engine.asking import PROMPT, answer, asked, said
from tests.engine.fake import Fake
from woolly.engine import AnswerOptions, Engine, LogprobOptions, Sequence
from woolly.engine.sampling.infill import infill
from woolly.engine.sampling.stages import NO_TOKEN, Candidates, pick
from woolly.request import Sampling, Text

WORDS = [b"a", b"ab", b"abc", b"x", b"y", b"", b""]
END, OTHER_END = 5, 6
ENDS = frozenset((END, OTHER_END))


def left(**shares: float) -> list[int]:
    """Which tokens stay of these shares; the first ones have the words of WORDS."""
    ids = np.array([int(name[1:]) for name in shares])
    logits = np.log(np.array([*shares.values()], np.float32))
    assert sorted(ids) == list(ids)
    row = np.full(len(WORDS), -9.0, np.float32)
    row[ids] = logits
    chosen = infill(Candidates(ids, logits), row, np.arange(len(WORDS)), ENDS, WORDS.__getitem__)
    return [int(token) for token in chosen.ids]


def test_ends_that_are_likely_enough_together_are_all_that_stays() -> None:
    assert left(t3=0.5, t4=0.3, t5=0.1, t6=0.1) == [END, OTHER_END]
    assert left(t3=0.58, t4=0.4, t5=0.02) == [3, 4, END]


def test_a_word_that_begins_another_counts_with_it() -> None:
    assert left(t0=0.15, t1=0.14, t3=0.71) == [3]  # together 0.29, but no fair share of what stays
    assert left(t0=0.3, t1=0.25, t2=0.15, t3=0.3) == [0]


def test_an_answer_without_a_clear_choice_ends() -> None:
    assert left(t0=0.3, t3=0.3, t4=0.4) == [0, 3, 4]
    row = np.zeros(40, np.float32)
    row[END] = -8.0
    chosen = infill(
        Candidates(np.arange(8, 40), row[8:]), row, np.arange(40), ENDS, lambda token: b"%d" % (token + 100)
    )
    assert chosen.ids.tolist() == [OTHER_END]  # of 32 equal words none has a fifth, and this end is the likelier


def test_an_end_that_is_not_allowed_is_never_chosen() -> None:
    row = np.zeros(40, np.float32)
    some = Candidates(np.arange(8, 40), row[8:])
    assert infill(some, row, some.ids, ENDS, lambda token: b"x").ids.tolist() == some.ids.tolist()


def test_only_rows_that_ask_for_it_are_filled() -> None:
    row = np.zeros(40, np.float32)

    def filling(c: Candidates, logits: object, allowed: object) -> Candidates:
        return c.only(c.ids == 7)

    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, top_k=0, top_p=1.0)
        assert pick(row, sampling, seed=1, position=3, filling=filling) == 7
    assert pick(np.full(4, np.nan, np.float32), sampling, seed=1, position=3, filling=filling) == NO_TOKEN


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_probabilities_after_the_sampling_are_those_that_tokens_were_drawn_by(temperature: float) -> None:
    engine = Engine(Fake(rows=5, wants=3))
    sampling = Sampling(temperature=temperature, top_k=3, top_p=1.0)
    plain = answer(engine, asked(PROMPT, sampling=sampling))
    how = AnswerOptions(sampling, 1, logprobs=LogprobOptions(5, post_sampling=True))
    asking = Sequence(PROMPT, limit=len(PROMPT) + 10, answer=how)
    events = answer(engine, asking)
    assert said(events) == said(plain)
    rows = [row for event in events if isinstance(event, Text) for row in event.logprobs]
    assert len(rows) == 10
    for row in rows:
        shares = {token: math.exp(value) for token, _, value in row.top}
        assert len(shares) == (3 if temperature else 1)
        assert shares[row.token] == pytest.approx(math.exp(row.value))
        assert sum(shares.values()) == pytest.approx(1.0)
