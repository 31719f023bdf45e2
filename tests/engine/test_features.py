"""Ids that hold the place of given rows mean nothing: nobody who looks at the text sees them."""

from __future__ import annotations

import numpy as np

from tests.engine.asking import PROMPT, answer, said
from tests.engine.fake import Fake
from woolly.engine import AnswerOptions, Engine, LogprobOptions, Sequence
from woolly.engine.features import Features
from woolly.engine.speculation.lookup import Lookup
from woolly.request import Prompt, Sampling

PLACE = 31
PENALTIES = Sampling(repetition_penalty=2.0, repeat_last_n=-1, dry_multiplier=1.0, dry_allowed_length=1)
GIVEN = [3, 1, *[PLACE] * 8, 4, 1, 5, 9, 2, 6]
FEATURES = (Features(2, 8, b"digest"),)


def test_without_features_the_words_are_the_tokens() -> None:
    sequence = Sequence(PROMPT, limit=99)
    assert sequence.words is sequence.tokens


def test_the_words_of_a_text_grow_with_it() -> None:
    sequence = Sequence(GIVEN, limit=99, answer=AnswerOptions(Sampling(temperature=0.0)), features=FEATURES)
    answer(Engine(Fake()), sequence)
    assert sequence.words == [3, 1, 4, 1, 5, 9, 2, 6, *sequence.tokens[len(GIVEN) :]]
    assert len(sequence.tokens) > len(GIVEN) and sequence.tokens[: len(GIVEN)] == GIVEN


def test_penalties_do_not_count_placeholders() -> None:
    logits = np.full(32, 8.0, np.float32)
    sequence = Sequence(GIVEN, limit=99, answer=AnswerOptions(PENALTIES), features=FEATURES)
    sequence.answer.prepare(logits, sequence.words, [])
    assert logits[PLACE] == 8.0 and logits[9] == 4.0
    repeated = np.full(32, 8.0, np.float32)
    plain = Sequence(GIVEN, limit=99, answer=AnswerOptions(PENALTIES))
    plain.answer.prepare(repeated, plain.words, [])
    assert repeated[PLACE] < 8.0


def test_placeholders_are_no_repetition_to_guess_from() -> None:
    tokens = [1, 2, 3, *[PLACE] * 8]
    sequence = Sequence(tokens, limit=99, features=(Features(3, 8, b"digest"),))
    assert Lookup().find(tokens) is not None
    assert Lookup().find(sequence.words) is None


def test_the_likelihoods_of_a_prompt_are_those_of_its_words() -> None:
    telling = AnswerOptions(logprobs=LogprobOptions(2, of_prompt=True))
    plain = Sequence(GIVEN, limit=len(GIVEN) + 3, answer=telling)
    filled = Sequence(GIVEN, limit=len(GIVEN) + 3, answer=telling, features=FEATURES)
    expected, events = answer(Engine(Fake(rows=5)), plain), answer(Engine(Fake(rows=5)), filled)
    assert said(events) == said(expected)
    (one,), (other,) = ([event for event in each if isinstance(event, Prompt)] for each in (expected, events))
    assert other.first == one.first
    assert other.logprobs == tuple(row for at, row in enumerate(one.logprobs, 1) if not 2 <= at < 10)
    behind = Sequence([PLACE, *GIVEN], limit=99, answer=telling, features=(Features(0, 1, b"digest"),))
    (short,) = [event for event in answer(Engine(Fake()), behind) if isinstance(event, Prompt)]
    assert short.first[0] == 3 and [row.token for row in short.logprobs] == GIVEN[1:]
