"""Likelihoods: the logits of a prompt, and how likely each token was, are the model's own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.asking import PROMPT, answer, asked, said
from tests.engine.fake import Fake, logits_of
from woolly.engine import AnswerOptions, Engine, LogprobOptions, Scores, Sequence
from woolly.request import End, Prompt, Sampling, Start, Text


def telling(count: int) -> AnswerOptions:
    return AnswerOptions(logprobs=LogprobOptions(count, of_prompt=True))


def test_scores_are_the_logits_of_every_token() -> None:
    runner = Fake(rows=5, wants=3)
    engine = Engine(runner)
    answer(engine, asked(PROMPT))
    rows = np.zeros((len(PROMPT), 32), np.float32)
    events = answer(engine, Sequence(PROMPT, limit=len(PROMPT), scores=Scores(rows)))
    assert [type(event) for event in events] == [Start, End]
    for index, row in enumerate(rows):
        assert (row == logits_of(np.array(PROMPT[: index + 1], np.int32), 32)).all()


def test_the_likelihoods_of_a_prompt_come_before_the_answer_and_leave_it_as_it_is() -> None:
    engine = Engine(Fake(rows=5, wants=3))
    plain = said(answer(engine, asked(PROMPT, sampling=Sampling(temperature=0.0))))
    scored = Sequence(PROMPT, limit=len(PROMPT) + 10, answer=telling(2))  # its pages are known
    events = answer(engine, scored)
    assert [type(event) for event in events[:3]] == [Start, Prompt, Text]
    assert said(events) == plain
    prompt = events[1]
    assert isinstance(prompt, Prompt)
    assert [prompt.first[0], *(row.token for row in prompt.logprobs)] == PROMPT
    for index, row in enumerate(prompt.logprobs):
        logits = logits_of(np.array(PROMPT[: index + 1], np.int32), 32).astype(np.float64)
        assert row.value == pytest.approx(logits[PROMPT[index + 1]] - np.log(np.exp(logits).sum()))


def test_a_prompt_with_likelihoods_leaves_rows_to_answers_of_the_same_step() -> None:
    engine = Engine(Fake(rows=16, wants=3, context=128))
    scored = Sequence(PROMPT * 4, limit=len(PROMPT) * 4 + 2, answer=telling(0))
    engine.add(scored)
    other = asked(PROMPT, tokens=12)
    engine.add(other)
    for _ in range(14):
        engine.turn()
    assert len(other.tokens) == len(PROMPT) + 12  # complete while the long prompt was still being scored
    assert scored.wanted < scored.prompt - 1


def test_logprobs_are_those_of_the_models_own_logits() -> None:
    sampling = Sampling(temperature=0.0, logit_bias={7: 100.0})
    how = AnswerOptions(sampling, logprobs=LogprobOptions(2))
    sequence = Sequence(PROMPT, limit=len(PROMPT) + 1, answer=how)
    (text,) = [event for event in answer(Engine(Fake()), sequence) if isinstance(event, Text)]
    raw = logits_of(np.array(PROMPT, np.int32), 32).astype(np.float64)
    logs = raw - np.log(np.exp(raw).sum())
    (row,) = text.logprobs
    assert row.token == 7
    assert row.value == pytest.approx(logs[7])
    assert [token for token, _, _ in row.top] == np.argsort(-logs)[:2].tolist()
