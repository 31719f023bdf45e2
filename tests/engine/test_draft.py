"""Drafts change how many tokens a step brings and nothing else: text, likelihoods, ends and counts stay as they are."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.engine.asking import BYTES, PROMPT, WARM, alone, answer, asked, end_of, free_pages, said, work_off
from tests.engine.fake import Fake, Outputs
from woolly.device import StepSize
from woolly.engine import AnswerOptions, Engine, LogprobOptions, Sequence
from woolly.engine.speculation.draft import LENGTHS, PAYS, Drafts, Price, best_length
from woolly.engine.speculation.lookup import GRAM, Chance, Lookup, follow
from woolly.request import End, Event, Failed, Sampling, Text
from woolly.text import TextStream


class Guesses(Drafts):
    """Drafts of the next four tokens of the answer, some of them wrong on purpose."""

    def __init__(self, engine: Engine, right: list[int], wrong: frozenset[int] = frozenset()) -> None:
        super().__init__(engine.bounds, engine.pages)
        self.right, self.wrong = right, wrong

    def guess(self, sequence: Sequence, rows: int, answers: int, most: int) -> list[int]:
        begin = len(sequence.tokens) - sequence.prompt
        places = range(begin, min(begin + 4, begin + most, len(self.right)))
        return [(self.right[i] + (i in self.wrong)) % 32 for i in places]


def both(make: Sequence, again: Sequence, wrong: frozenset[int] = frozenset(), **sizes: int) -> list[list[Event]]:
    """The events of a sequence without drafts, and with drafts made of the answer it gave without."""
    plain = Engine(Fake(**sizes), drafts=False)
    events = [answer(plain, make)]
    engine = Engine(Fake(**sizes))
    engine.drafts = Guesses(engine, make.tokens[make.prompt :], wrong)
    events.append(answer(engine, again))
    assert free_pages(engine)
    return events


def told(events: list[Event]) -> tuple[str, list[int], list[object]]:
    texts = [event for event in events if isinstance(event, Text)]
    rows = [row for event in texts for row in event.logprobs]
    return "".join(event.text for event in texts), said(events), list(rows)


SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": WARM,
    "few": Sampling(temperature=0.8, top_k=5, top_p=0.9, min_p=0.02),
    "penalties": Sampling(
        temperature=0.9, repetition_penalty=1.3, presence_penalty=0.7, frequency_penalty=0.4, logit_bias={3: 2.0}
    ),
    "all that was said": Sampling(temperature=1.2, repetition_penalty=1.5, repeat_last_n=-1),
    "xtc": Sampling(temperature=1.0, xtc_probability=0.5, xtc_threshold=0.05, typical_p=0.9),
    "mirostat": Sampling(temperature=1.0, mirostat=2, mirostat_tau=2.0, mirostat_eta=0.3),
}


@pytest.mark.parametrize("wrong", [frozenset(), frozenset({2}), frozenset({0, 1, 5, 9}), frozenset(range(40))])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_text_and_likelihoods_are_those_without_drafts(sampling: str, wrong: frozenset[int]) -> None:
    def make() -> Sequence:
        how = AnswerOptions(SAMPLINGS[sampling], 3, logprobs=LogprobOptions(3, of_prompt=True))
        return Sequence(PROMPT, limit=len(PROMPT) + 30, answer=how)

    without, with_drafts = both(make(), make(), wrong)
    assert told(with_drafts) == told(without)
    end, plain = end_of(with_drafts), end_of(without)
    assert (end.reason, end.usage, end.seed) == (plain.reason, plain.usage, plain.seed)
    assert (plain.timings.drafted, plain.timings.accepted) == (0, 0)
    assert end.timings.accepted <= end.timings.drafted > 0
    if not wrong:
        assert end.timings.accepted == end.timings.drafted
    if len(wrong) == 40:
        assert end.timings.accepted == 0


def test_a_right_draft_brings_all_its_tokens_in_one_step() -> None:
    class Counting(Fake):
        steps = 0

        def run(self, size: StepSize) -> Outputs | None:
            self.steps += 1
            return super().run(size)

    tokens = said(answer(Engine(Fake()), asked(PROMPT, tokens=21)))
    runner = Counting()
    engine = Engine(runner)
    engine.drafts = Guesses(engine, tokens)
    assert said(answer(engine, asked(PROMPT, tokens=21))) == tokens
    assert runner.steps == 1 + 20 // 4  # a step has four outputs, three of them for drafted tokens
    assert engine.tally.decode_tokens == 20


@pytest.mark.parametrize("at", range(1, 9))
def test_an_end_token_inside_a_draft_ends_the_answer_there(at: int) -> None:
    tokens = said(answer(Engine(Fake()), asked(PROMPT, tokens=20)))
    without, with_drafts = both(asked(PROMPT, tokens=20, end=tokens[at]), asked(PROMPT, tokens=20, end=tokens[at]))
    assert said(with_drafts) == said(without) == tokens[: tokens.index(tokens[at]) + 1]
    assert end_of(with_drafts).usage == end_of(without).usage


def test_a_stop_text_inside_a_draft_ends_the_answer_before_it() -> None:
    def make(stop: tuple[str, ...]) -> Sequence:
        bias = dict.fromkeys(range(97, 107), 20.0)
        sampling = replace(WARM, logit_bias=bias)
        return Sequence([1, 2, 3], limit=60, answer=AnswerOptions(sampling, 5, text=TextStream(BYTES, stop)))

    sizes = {"vocab": 257}
    single_step = told(both(make(()), make(()), **sizes)[0])[0]
    for begin in range(3, 12):
        stop = single_step[begin : begin + 3]
        without, with_drafts = both(make((stop,)), make((stop,)), **sizes)
        assert told(with_drafts)[0] == told(without)[0] == single_step[: single_step.index(stop)]
        assert end_of(with_drafts).reason == "stop"
        assert end_of(with_drafts).usage == end_of(without).usage


@pytest.mark.parametrize("tokens", range(1, 8))
def test_an_answer_has_no_more_tokens_than_its_limit(tokens: int) -> None:
    without, with_drafts = both(asked(PROMPT, tokens=tokens), asked(PROMPT, tokens=tokens))
    assert said(with_drafts) == said(without)
    assert len(said(with_drafts)) == tokens


def test_the_context_may_be_full_to_its_end() -> None:
    without, with_drafts = both(asked([1, 2, 3], tokens=29), asked([1, 2, 3], tokens=29), context=32, pages=8)
    assert said(with_drafts) == said(without)


@pytest.mark.parametrize("windows", [(0,), (6,), (0, 5)])
@pytest.mark.parametrize("page", [1, 2, 4])
def test_pages_are_remembered_only_as_far_as_tokens_are_known(windows: tuple[int, ...], page: int) -> None:
    """A wrong draft that crosses the border of a page leaves no page in the cache that another prompt would match."""
    for wrong in range(1, 12):
        runner = Fake(page=page, pages=64, windows=windows)
        engine = Engine(runner)
        right = alone(PROMPT, WARM, 1, len(PROMPT) + 24, frozenset(), 32, windows=windows)
        engine.drafts = Guesses(engine, right, frozenset({wrong}))
        first = said(answer(engine, asked(PROMPT, tokens=24)))
        assert first == right
        history = PROMPT + first
        engine.drafts = None
        expected = alone(history, WARM, 2, len(history) + 5, frozenset(), 32, windows=windows)
        assert said(answer(engine, asked(history, tokens=5, seed=2))) == expected


def test_a_cancelled_answer_leaves_no_page_behind_its_draft() -> None:
    tokens = said(answer(Engine(Fake()), asked(PROMPT, tokens=40)))
    engine = Engine(Fake())
    engine.drafts = Guesses(engine, tokens, frozenset({6}))
    stream = engine.add(asked(PROMPT, tokens=40))
    for _ in range(4):
        engine.turn()
    stream.cancel()
    engine.take_inbox()
    events = list(stream)
    assert isinstance(events[-1], End) and events[-1].reason == "cancelled"
    assert said(events) == tokens[: len(said(events))]
    assert free_pages(engine)


def test_drafts_take_no_page_that_another_needs() -> None:
    tight = Fake(page=4, pages=9, sequences=2, wants=12, rows=16)
    engine = Engine(tight)
    tokens = {seed: alone(PROMPT, WARM, seed, len(PROMPT) + 10, frozenset(), 32) for seed in (1, 2)}
    engine.drafts = Guesses(engine, [random.Random(1).randrange(32) for _ in range(40)])
    streams = {seed: engine.add(asked(PROMPT, tokens=10, seed=seed)) for seed in (1, 2)}
    work_off(engine)
    assert {seed: said(list(stream)) for seed, stream in streams.items()} == tokens


@pytest.mark.parametrize("sizes", [{"slots": True}, {"single_step": True, "rows": 64}])
def test_models_that_cannot_go_back_get_no_drafts(sizes: dict[str, int]) -> None:
    assert Engine(Fake(**sizes)).drafts is None


# Where a guess comes from


def test_the_text_is_looked_up_for_what_followed_last_time() -> None:
    lookup = Lookup()
    text = [1, 2, 3, 4, 5, 9, 2, 3, 4, 6, 7, 2, 3]
    assert lookup.find(text) is None
    text.append(4)
    place, _ = lookup.find(text) or (0, None)
    assert follow(text, place, 3) == [6, 7, 2]
    assert follow(text, place, 7) == [6, 7, 2, 3, 4, 6, 7]  # a text that repeats itself


@pytest.mark.parametrize("length", range(GRAM + 2))
def test_a_short_text_repeats_nothing(length: int) -> None:
    assert Lookup().find(list(range(length))) is None


def test_a_lookup_that_reads_on_finds_what_one_that_reads_all_finds() -> None:
    dice = random.Random(5)
    text = [dice.randrange(4) for _ in range(300)]
    growing = Lookup()
    for known in range(1, 300):
        repeat, fresh = growing.find(text[:known]), Lookup().find(text[:known])
        assert (repeat and repeat[0]) == (fresh and fresh[0])
        if repeat:
            assert text[repeat[0] - GRAM : repeat[0]] == text[known - GRAM : known]
            later = [p for p in range(repeat[0] + 1, known) if text[p - GRAM : p] == text[known - GRAM : known]]
            assert not later, "the last place counts"


def test_places_that_agree_over_many_tokens_are_counted_apart() -> None:
    lookup = Lookup()
    _, shallow = lookup.find([1, 2, 3, 8, 0, 1, 2, 3]) or (0, Chance())
    assert shallow is lookup.chances[0]
    _, deep = lookup.find([*[1, 2, 3, 8, 0, 1, 2, 3], *range(20, 40), *range(20, 32)]) or (0, shallow)
    assert deep is lookup.chances[-1]


def test_a_chance_follows_what_was_right_and_comes_back_when_that_is_long_ago() -> None:
    chance = Chance()
    before = chance.at(0)
    for known in range(10):
        chance.count(known, 0, 1)
    assert chance.at(10) < 0.1
    assert before - 0.05 < chance.at(500) <= before
    for known in range(500, 520):
        chance.count(known, 5, 5)
    assert chance.at(520) > 0.95


# How long a draft is


def price(seconds: dict[int, float], *, noise: float = 0.0) -> Price:
    """Prices measured in many steps of each size, on a machine whose speed changes all the time."""
    result, dice = Price(), random.Random(3)
    for number in range(3000):
        busy = 1 + noise * (number // 50 % 2) + noise * dice.random()
        rows = dice.choice(list(seconds))
        result.measure(rows, seconds[rows] * busy)
    return result


FLAT = price({1: 1.0, 2: 1.01, 3: 1.02, 4: 1.03, 6: 1.05, 8: 1.08, 12: 1.15, 16: 1.25})
STEEP = price({1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 6: 6.0, 8: 8.0, 12: 12.0, 16: 16.0})


def test_a_draft_is_as_long_as_it_pays() -> None:
    assert best_length(0.99, FLAT, 1, 1, 15) == LENGTHS[-1]
    assert best_length(0.99, FLAT, 1, 1, 6) == 5
    assert 1 <= best_length(0.5, FLAT, 1, 1, 15) <= 7
    assert best_length(0.02, FLAT, 1, 1, 15) == 0
    assert best_length(1.0, STEEP, 1, 1, 15) == 0


def test_a_draft_of_one_among_many_answers_has_to_pay_for_all() -> None:
    crowd = price({16: 1.0, 17: 1.06, 18: 1.12, 19: 1.18, 21: 1.3})
    assert best_length(0.9, crowd, 16, 16, 15) == 0
    assert best_length(0.9, crowd, 16, 1, 15) > 0
    assert PAYS > 1


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_prices_are_told_apart_from_the_speed_of_the_machine(noise: float) -> None:
    measured = price({1: 0.010, 4: 0.015, 8: 0.022}, noise=noise)
    assert measured.of(4) / measured.of(1) == pytest.approx(1.5, rel=0.1)
    assert measured.of(8) / measured.of(1) == pytest.approx(2.2, rel=0.1)
    assert measured.of(6) / measured.of(1) == pytest.approx(1.5, rel=0.25)  # interpolated: 6 rows were not measured
    assert measured.of(1000) > measured.of(12) > measured.of(8)


def test_one_slow_step_says_little() -> None:
    measured = price({1: 0.010, 4: 0.015})
    before = measured.of(4)
    measured.measure(4, 9.0)
    assert measured.of(4) <= 1.06 * before


def test_a_length_that_once_seemed_dear_is_tried_again() -> None:
    """Otherwise a few slow steps in the beginning would prevent drafts for the life of the process."""
    measured = price({1: 1.0, 2: 3.0, 3: 5.0, 4: 7.0, 6: 9.0, 8: 12.0, 12: 20.0, 16: 30.0})
    assert best_length(0.9, measured, 1, 1, 15) == 0
    for _ in range(Price.LASTS):
        measured.measure(1, 1.0)
    assert best_length(0.9, measured, 1, 1, 15) > 0


# A smaller model


class Free(Price):
    def of(self, rows: int) -> float:
        return 1.0

    def of_time(self, seconds: float) -> float:
        return 0.0


def with_model(draft: Fake, **sizes: int) -> Engine:
    """An engine whose drafts come from a model, of as many tokens as there is room for."""
    engine = Engine(Fake(wants=8, **sizes), draft_runner=draft)
    assert engine.drafts is not None
    engine.drafts.price = Free()
    return engine


class Spoiled(Fake):
    """A draft model whose logits are disturbed after every third token."""

    def run(self, size: StepSize) -> Outputs | None:
        outputs = super().run(size)
        if outputs is not None and size.positions % 3 == 0:
            outputs["logits"] += np.roll(outputs["logits"], 1, axis=1) * 3
        return outputs


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("kind", [Fake, Spoiled])
@pytest.mark.parametrize("sampling", ["greedy", "sampled", "penalties", "mirostat"])
def test_a_model_that_guesses_changes_no_answer(sampling: str, kind: type[Fake], page: int) -> None:
    def make() -> Sequence:
        how = AnswerOptions(SAMPLINGS[sampling], 3, logprobs=LogprobOptions(2))
        return Sequence(PROMPT, limit=len(PROMPT) + 40, answer=how)

    expected = told(answer(Engine(Fake(), drafts=False), make()))
    engine = with_model(kind(rows=8, page=page))
    events = answer(engine, make())
    assert told(events) == expected
    timings = end_of(events).timings
    assert timings.drafted > 0
    if kind is Fake and sampling in ("greedy", "sampled"):
        assert timings.accepted == timings.drafted >= 30
    model = engine.drafts.model if engine.drafts is not None else None
    assert model is not None and not model._copies
    assert model._pages.available == model._pages.count
    engine.close()
    assert isinstance(model._runner, Fake) and model._runner.closed


def test_a_model_reads_a_long_prompt_in_pieces_and_guesses_when_it_has_read_it() -> None:
    prompt = [number * 7 % 32 for number in range(150)]
    expected = said(answer(Engine(Fake(), drafts=False), asked(prompt, tokens=60)))
    events = answer(with_model(Fake(rows=16)), asked(prompt, tokens=60))
    assert said(events) == expected
    assert end_of(events).timings.accepted > 20


@pytest.mark.parametrize("sizes", [{"context": 20}, {"pages": 5}, {"pages": 6, "context": 26}])
def test_a_model_without_room_guesses_nothing_and_stops_nobody(sizes: dict[str, int]) -> None:
    expected = said(answer(Engine(Fake(), drafts=False), asked(PROMPT, tokens=40)))
    engine = with_model(Fake(**sizes))
    streams = [engine.add(asked(PROMPT, tokens=40)) for _ in range(3)]
    work_off(engine)
    assert [said(list(stream)) for stream in streams] == [expected] * 3


def test_a_model_that_fails_takes_its_answer_with_it_and_no_others() -> None:
    class Broken(Fake):
        def run(self, size: StepSize) -> Outputs | None:
            raise RuntimeError("broken")

    engine = with_model(Broken())
    events = answer(engine, asked(PROMPT))
    assert isinstance(events[-1], Failed)
    engine.drafts = None
    assert end_of(answer(engine, asked(PROMPT))).reason == "length"


def test_a_model_that_is_slow_is_not_asked() -> None:
    assert best_length(0.9, FLAT, 1, 1, 15, each=0.05 * FLAT.of(1)) > 0
    assert best_length(0.9, FLAT, 1, 1, 15, each=1.0 * FLAT.of(1)) == 0
