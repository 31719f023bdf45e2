"""The turn: every request is answered as if it were alone, and no page is lost."""

from __future__ import annotations

import threading

import pytest

from tests.engine.asking import PROMPT, WARM, alone, answer, asked, end_of, free_pages, said, work_off
from tests.engine.fake import Fake
from woolly.engine import Engine
from woolly.errors import ContextError, RequestError
from woolly.request import Sampling, Start


def test_an_answer_begins_and_ends_and_has_every_token() -> None:
    engine = Engine(Fake())
    events = answer(engine, asked(PROMPT))
    assert events[0] == Start(prompt_tokens=len(PROMPT), cached_tokens=0)
    assert said(events) == alone(PROMPT, WARM, 1, len(PROMPT) + 10, frozenset(), 32)
    end = end_of(events)
    assert (end.reason, end.usage.completion_tokens, end.seed) == ("length", 10, 1)
    assert free_pages(engine)


@pytest.mark.parametrize("rows", [1, 3, 7, 16, 64])
def test_a_prompt_in_chunks_gives_the_same_tokens(rows: int) -> None:
    single_step = said(answer(Engine(Fake(rows=64)), asked(PROMPT)))
    assert said(answer(Engine(Fake(rows=rows)), asked(PROMPT))) == single_step


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    engine = Engine(Fake())
    first = said(answer(engine, asked(PROMPT, seed=5)))
    assert said(answer(engine, asked(PROMPT, seed=5))) == first
    assert said(answer(Engine(Fake()), asked(PROMPT, seed=5))) == first
    assert said(answer(engine, asked(PROMPT, seed=6))) != first


def test_an_end_token_ends_and_is_the_last_token() -> None:
    tokens = said(answer(Engine(Fake()), asked(PROMPT)))
    events = answer(Engine(Fake()), asked(PROMPT, end=tokens[3]))
    assert said(events) == tokens[: tokens.index(tokens[3]) + 1]
    assert end_of(events).reason == "stop"


def test_the_next_turn_of_a_chat_computes_only_what_no_page_holds() -> None:
    runner = Fake(context=256, pages=64, page=8)
    engine = Engine(runner)
    first = answer(engine, asked(PROMPT, tokens=20))
    history = PROMPT + said(first) + [1, 2, 3]
    runner.computed = 0
    second = answer(engine, asked(history, tokens=5))
    single_step = (len(history) - 3 - 1) // 8 * 8  # the answer's last token was never computed
    assert second[0] == Start(prompt_tokens=len(history), cached_tokens=single_step)
    assert runner.computed == len(history) - single_step + 4
    assert end_of(second).usage.cached_tokens == single_step
    assert said(second) == said(answer(Engine(Fake(page=8)), asked(history, tokens=5)))


def test_an_equal_prompt_computes_its_last_token_again_and_no_more_than_a_page() -> None:
    runner = Fake(page=2)
    engine = Engine(runner)
    answer(engine, asked(PROMPT, tokens=1))
    runner.computed = 0
    answer(engine, asked(PROMPT, tokens=1))
    assert runner.computed == 2


def test_several_answers_at_once_are_those_of_each_alone() -> None:
    engine = Engine(Fake(rows=6, sequences=3, wants=3))
    streams = [engine.add(asked([seed, *PROMPT], seed=seed)) for seed in range(5)]
    work_off(engine)
    for seed, stream in enumerate(streams):
        assert said(list(stream)) == alone([seed, *PROMPT], WARM, seed, len(PROMPT) + 11, frozenset(), 32)
    assert free_pages(engine)


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    engine = Engine(Fake(context=40, page=4, pages=8))
    engine.add(asked(PROMPT, tokens=18))
    with pytest.raises(ContextError) as caught:
        engine.add(asked(PROMPT, tokens=19))  # the pool holds 32 positions
    assert (caught.value.prompt, caught.value.answer, caught.value.limit) == (14, 19, 32)
    with pytest.raises(RequestError):
        engine.add(asked([]))


def test_penalties_and_bias_reach_the_choice() -> None:
    greedy = Sampling(temperature=0.0)
    tokens = said(answer(Engine(Fake()), asked(PROMPT, sampling=greedy)))
    banned = Sampling(temperature=0.0, logit_bias={tokens[0]: -100.0})
    assert said(answer(Engine(Fake()), asked(PROMPT, sampling=banned)))[0] != tokens[0]
    forced = Sampling(temperature=0.0, logit_bias={17: 100.0})
    assert said(answer(Engine(Fake()), asked(PROMPT, sampling=forced))) == [17] * 10
    for once in (Sampling(temperature=0.0, presence_penalty=100.0), Sampling(temperature=0.0, frequency_penalty=100.0)):
        unique = said(answer(Engine(Fake()), asked(PROMPT, tokens=30, sampling=once)))
        assert len(set(unique)) == 30  # no token twice; those of the prompt may come once
    shy = said(answer(Engine(Fake()), asked(PROMPT, sampling=Sampling(temperature=0.0, repetition_penalty=100.0))))
    assert not set(shy) & set(PROMPT)


def test_many_threads_are_answered_at_once() -> None:
    engine = Engine(Fake(rows=8, sequences=3, wants=3))
    engine.start()
    results: dict[int, list[int]] = {}

    def ask(seed: int) -> None:
        results[seed] = said(list(engine.add(asked([seed, *PROMPT], seed=seed))))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close()
    assert free_pages(engine)
    for seed, tokens in results.items():
        assert tokens == alone([seed, *PROMPT], WARM, seed, len(PROMPT) + 11, frozenset(), 32)


def test_an_answer_pauses_while_its_reader_is_behind_and_then_says_the_same() -> None:
    expected = said(answer(Engine(Fake()), asked(PROMPT, tokens=100)))
    engine = Engine(Fake())
    stream = engine.add(asked(PROMPT, tokens=100, unread=8))
    for _ in range(20):
        engine.take_inbox()
        engine.turn() if stream.room() else None
    assert not stream.room()
    engine.start()
    assert said(list(stream)) == expected
    engine.close()
