"""The stages without a native twin, each against a slow definition of its own, and what holds for all of them."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.engine.asking import BYTES, PROMPT, alone, asked, said, work_off
from tests.engine.fake import Fake
from woolly.engine import AnswerOptions, Engine
from woolly.engine.answer import AnswerState
from woolly.engine.sampling import stages
from woolly.engine.sampling.dry import MOST, Breaks, dry, longest_repeats
from woolly.engine.sampling.stages import Candidates, Surprise, last, native_values, pick, uniform
from woolly.request import SAMPLING, Sampling

OPEN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
USES: tuple[dict[str, Any], ...] = (
    {"typical_p": 0.5},
    {"top_n_sigma": 1.0},
    {"xtc_probability": 0.7, "xtc_threshold": 0.05},
    {"top_k": 1, "min_keep": 4},
    {"dynatemp_range": 0.8, "dynatemp_exponent": 0.5},
    {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.5},
    {"dry_multiplier": 3.0, "dry_allowed_length": 1},
    {"repetition_penalty": 1.3, "repeat_last_n": 3},
)
# Far enough apart that no rounding decides an order, and with ties.
rows = st.lists(st.integers(-40, 40), min_size=1, max_size=40).map(lambda v: np.array(v, np.float32) / 4)


def candidates(logits: NDArray[np.float32]) -> Candidates:
    return Candidates(np.arange(len(logits)), logits)


def shares(logits: NDArray[np.float32]) -> list[float]:
    weights = [math.exp(float(x) - float(logits.max())) for x in logits]
    return [w / math.fsum(weights) for w in weights]


def test_what_was_there_before_is_as_it_was() -> None:
    assert native_values(Sampling()) == (50, 0.9, 0.0, 0.7)
    assert not stages.edits_logits(Sampling())


@given(rows, st.floats(0.1, 4))
def test_top_n_sigma_keeps_what_is_within_so_many_deviations(logits: NDArray[np.float32], n: float) -> None:
    values = [float(x) for x in logits]
    edge = max(values) - n * statistics.pstdev(values)
    ids = set(stages.top_n_sigma(candidates(logits), n).ids.tolist())
    assert (
        {i for i, x in enumerate(values) if x > edge + 1e-9}
        <= ids
        <= {i for i, x in enumerate(values) if x >= edge - 1e-9}
    )
    assert int(logits.argmax()) in ids


@given(rows, st.floats(0.01, 0.99))
def test_typical_p_keeps_the_tokens_of_the_expected_surprise(logits: NDArray[np.float32], p: float) -> None:
    shared = shares(logits)
    entropy = -math.fsum(x * math.log(x) for x in shared)
    distance = [abs(-math.log(x) - entropy) for x in shared]
    ids = stages.typical_p(candidates(logits), p).ids.tolist()
    assert (
        max(distance[i] for i in ids)
        <= min((distance[i] for i in set(range(len(shared))) - set(ids)), default=9e9) + 1e-5
    )
    total = math.fsum(shared[i] for i in ids)
    assert total >= p - 1e-5
    farthest = max(distance[i] for i in ids)
    without = [i for i in ids if distance[i] < farthest - 1e-5]
    assert math.fsum(shared[i] for i in without) < p + 1e-5, "no more than it takes"


@given(rows, st.floats(0.001, 1.0))
def test_xtc_leaves_the_least_likely_of_the_likely(logits: NDArray[np.float32], threshold: float) -> None:
    shared = shares(logits)
    if any(abs(x - threshold) < 1e-5 for x in shared):
        return
    likely = sorted((i for i, x in enumerate(shared) if x > threshold), key=lambda i: (-float(logits[i]), i))
    left = [i for i in range(len(shared)) if i not in likely[:-1]]
    assert stages.xtc_probability(candidates(logits), 0.5, threshold, 0.49).ids.tolist() == left
    assert len(stages.xtc_probability(candidates(logits), 0.5, threshold, 0.5).ids) == len(shared)


def test_xtc_is_used_as_often_as_it_says_and_has_a_number_of_its_own() -> None:
    logits = np.log(np.array([0.6, 0.3, 0.1], np.float32))
    s = Sampling(**OPEN, xtc_probability=0.25, xtc_threshold=0.2)
    never = [pick(logits, Sampling(**OPEN), seed=3, position=i) for i in range(2000)]
    often = [pick(logits, s, seed=3, position=i) for i in range(2000)]
    used = [uniform(3, i, 1) < 0.25 for i in range(2000)]
    assert 420 < sum(used) < 580
    assert all(token != 0 for token, was in zip(often, used, strict=True) if was)
    assert all(one == other for one, other, was in zip(never, often, used, strict=True) if not was)
    assert 0.5 < statistics.fmean(token == 0 for token, was in zip(never, used, strict=True) if was) < 0.7


@given(rows, st.floats(0.2, 2), st.floats(0.05, 3), st.floats(0, 4))
def test_the_temperature_follows_the_entropy(
    logits: NDArray[np.float32], t: float, spread: float, exponent: float
) -> None:
    shared = shares(logits)
    doubt = -math.fsum(x * math.log(x) for x in shared) / math.log(len(shared)) if len(shared) > 1 else None
    scaled = stages.temperature(stages.dynatemp_range(candidates(logits), spread, exponent, t), t)
    below = logits.astype(np.float64) - logits.max()
    if doubt is None:
        assert scaled.logits.tolist() == [0.0]
        return
    low = max(0.0, t - spread)
    wanted = max(low + (t + spread - low) * doubt**exponent, 1e-6)
    np.testing.assert_allclose(scaled.logits, below / wanted, rtol=2e-3 if wanted < 0.05 else 1e-4)


def test_no_stage_leaves_fewer_than_min_keep() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    before = candidates(logits)
    assert stages.at_least(0, before, stages.top_k(before, 1)).ids.tolist() == [1]
    assert stages.at_least(3, before, stages.top_k(before, 1)).ids.tolist() == [1, 2, 3]
    assert stages.at_least(9, before, stages.top_k(before, 1)).ids.tolist() == [0, 1, 2, 3]
    left = stages.xtc_probability(before, 1.0, 0.15, 0.0)
    assert left.ids.tolist() == [0, 2]
    assert stages.at_least(3, before, left).ids.tolist() == [0, 1, 2], "the likeliest comes back first"
    s = Sampling(**{**OPEN, "top_k": 1, "min_keep": 2})
    assert {pick(logits, s, seed=1, position=i) for i in range(100)} == {1, 3}


def slow_mirostat(logits: list[NDArray[np.float32]], tau: float, eta: float, seed: int) -> list[int]:
    """Mirostat 2 as its paper has it: sort, cut by surprise, draw, correct; no draw near an edge is judged."""
    allowed, tokens = 2 * tau, []
    for position, row in enumerate(logits):
        shared = shares(row)
        chosen = [i for i, x in enumerate(shared) if -math.log2(x) <= allowed]
        chosen = chosen or [max(range(len(shared)), key=lambda i: (shared[i], -i))]
        single_step, u, running = math.fsum(shared[i] for i in chosen), uniform(seed, position), 0.0
        for i in chosen:
            running += shared[i] / single_step
            if running > u:
                break
        tokens.append(i)
        allowed -= eta * (-math.log2(shared[i] / single_step) - tau)
    return tokens


def test_mirostat_is_that_of_its_paper() -> None:
    random = np.random.default_rng(5)
    for seed in range(20):
        logits = [(2 * random.standard_normal(30)).astype(np.float32) for _ in range(30)]
        s, surprise = Sampling(**OPEN, mirostat=2, mirostat_tau=2.5, mirostat_eta=0.3), Surprise()
        tokens = [pick(row, s, seed=seed, position=i, surprise=surprise) for i, row in enumerate(logits)]
        assert tokens == slow_mirostat(logits, 2.5, 0.3, seed)


@pytest.mark.parametrize("tau", [0.5, 1.5, 3.0])
def test_mirostat_comes_to_the_surprise_it_was_told(tau: float) -> None:
    random = np.random.default_rng(7)
    s, surprise = Sampling(**OPEN, mirostat=2, mirostat_tau=tau, mirostat_eta=0.1), Surprise()
    seen = []
    for position in range(1500):
        logits = (1.5 * random.standard_normal(200)).astype(np.float32)
        pick(logits, s, seed=1, position=position, surprise=surprise)
        seen.append(tau - (surprise[position + 1] - surprise[position]) / 0.1)
    assert statistics.fmean(seen[500:]) == pytest.approx(tau, abs=0.1)


def test_mirostat_picks_a_position_again_as_it_was() -> None:
    random = np.random.default_rng(9)
    logits = [random.standard_normal(50).astype(np.float32) for _ in range(20)]
    s, surprise = Sampling(**OPEN, mirostat=2, mirostat_tau=3.0), Surprise()
    first = [pick(row, s, seed=2, position=i, surprise=surprise) for i, row in enumerate(logits)]
    again = [pick(logits[i], s, seed=2, position=i, surprise=surprise) for i in (7, 3, 19, 0)]
    assert again == [first[i] for i in (7, 3, 19, 0)]


def test_with_mirostat_the_filters_do_not_count_and_temperature_zero_still_does() -> None:
    logits = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    narrow = Sampling(temperature=1.0, top_k=1, min_p=0.9, mirostat=2)
    assert len({pick(logits, narrow, seed=seed, position=0) for seed in range(50)}) > 5
    assert pick(logits, Sampling(temperature=0.0, mirostat=2), seed=1, position=0) == logits.argmax()


def slow_repeats(tokens: list[int], breaks: list[bool]) -> dict[int, int]:
    """By every place and length: the longest run before each token that equals the end of the text."""
    lengths: dict[int, int] = {}
    for place in range(1, len(tokens)):
        for length in range(1, place + 1):
            run = tokens[place - length : place]
            if run != tokens[len(tokens) - length :] or any(breaks[len(tokens) - length :]) or breaks[place]:
                continue
            if not any(breaks[place - length : place]):
                lengths[tokens[place]] = max(lengths.get(tokens[place], 0), length)
    return lengths


@given(st.lists(st.integers(0, 3), max_size=40), st.data())
def test_dry_finds_the_longest_repetition_that_each_token_would_go_on_with(
    tokens: list[int], data: st.DataObject
) -> None:
    broken = data.draw(st.sets(st.sampled_from([0, 3])))
    breaks = [token in broken for token in tokens]
    known = np.array(tokens, np.int64), np.array(breaks, np.bool_)
    assert longest_repeats(*known, 99) == slow_repeats(tokens, breaks)
    most = data.draw(st.integers(1, 5))
    assert longest_repeats(*known, most) == {t: min(n, most) for t, n in slow_repeats(tokens, breaks).items()}


def test_dry_takes_more_for_a_longer_repetition_and_never_makes_a_logit_infinite() -> None:
    s = Sampling(dry_multiplier=0.5, dry_base=2.0, dry_allowed_length=2)
    logits, tokens = np.zeros(10, np.float32), [1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3]
    dry(logits, tokens, np.zeros(12, np.bool_), s)
    assert {i: float(x) for i, x in enumerate(logits) if x} == {9: -0.5 * 2**1, 8: -0.5}  # 7 follows one token alone
    logits = np.zeros(10, np.float32)
    dry(logits, [4] * 5000, np.zeros(5000, np.bool_), Sampling(dry_multiplier=100.0, dry_base=100.0))
    assert logits[4] == -np.float32(MOST) and not logits[:4].any()
    for window, changed in ((3, False), (0, False), (12, True), (-1, True)):
        logits = np.zeros(10, np.float32)
        far = Sampling(dry_multiplier=1.0, dry_allowed_length=3, dry_penalty_last_n=window)
        dry(logits, tokens, np.zeros(12, np.bool_), far)
        assert logits.any() == changed


def test_a_breaker_is_found_in_the_text_wherever_its_tokens_begin() -> None:
    def marks(text: str, *breakers: str) -> str:
        tokens, breaks = list(text.encode()), Breaks(breakers, BYTES.bytes_of)
        breaks.of(tokens[: len(tokens) // 2])
        return "".join("x" if ends else "." for ends in breaks.of(tokens))

    assert marks("a:b\nc", ":", "\n") == ".x.x."
    assert marks("ababa", "aba") == "..x.x"
    assert marks("a--b", "--") == "..x."
    assert marks("né", "é") == "..x"
    assert marks("abc") == "..."
    words = {0: b"one, two", 1: b": ", 2: b"end.\n"}
    assert Breaks((":", "o: e"), words.__getitem__).of([0, 1, 2, 0]).tolist() == [False, True, True, False]


def test_the_window_of_the_repetition_penalty_is_what_was_asked() -> None:
    assert [last([1, 2, 3], n) for n in (-1, 0, 2, 3, 9)] == [[1, 2, 3], [], [2, 3], [1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize("use", USES, ids=lambda use: next(iter(use)))
def test_a_sampler_gives_the_same_text_alone_and_among_others_and_after_it_gave_way(use: dict[str, Any]) -> None:
    s = Sampling(**{**OPEN, **use})
    expected = alone(PROMPT, s, 4, len(PROMPT) + 40, frozenset(), 32)
    assert expected != alone(PROMPT, Sampling(**OPEN), 4, len(PROMPT) + 40, frozenset(), 32), "it has an effect"
    engine = Engine(Fake(page=4, pages=40, sequences=4))  # too few pages: some sequences are put back
    streams = [engine.add(asked(PROMPT, tokens=40, sampling=s, seed=4)) for _ in range(4)]
    work_off(engine)
    assert [said(list(stream)) for stream in streams] == [expected] * 4


def test_dry_of_a_sequence_knows_its_breakers() -> None:
    text = b"ab:ab"
    for breakers, free in (((":",), True), ((), False)):
        s = Sampling(temperature=0.0, dry_multiplier=1.0, dry_allowed_length=2, dry_sequence_breakers=breakers)
        answer, logits = AnswerState(AnswerOptions(s, spell=BYTES.bytes_of)), np.zeros(257, np.float32)
        answer.prepare(logits, list(text), [])
        assert (logits[ord(":")] == 0.0) == free


@given(st.data())
def test_any_sampling_that_is_taken_gives_a_token(data: st.DataObject) -> None:
    values = {}
    for row in SAMPLING.values():
        numbers = (
            st.integers(int(row.least), min(int(row.most), 50)) if row.type is int else st.floats(row.least, row.most)
        )
        values[row.name] = data.draw(numbers.filter(lambda v, step=row.step: v % step == 0 or step == 1))
    logits = data.draw(rows)
    s, surprise = Sampling(**values), Surprise()
    for position in range(4):
        token = pick(logits, s, seed=1, position=position, surprise=surprise)
        assert 0 <= token < len(logits)
