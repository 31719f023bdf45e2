"""How a token is chosen: each stage against results worked out by hand, and properties of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.engine.asking import PROMPT, alone, asked, said, work_off
from tests.engine.fake import Fake
from woolly.engine import Engine
from woolly.engine.sampling import stages
from woolly.engine.sampling.stages import NO_TOKEN, Candidates, Stage, philox, pick, uniform
from woolly.request import Sampling

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def candidates(*logits: float) -> Candidates:
    return Candidates(np.arange(len(logits)), f32(*logits))


def of_probabilities(*shares: float) -> Candidates:
    return candidates(*np.log(shares))


def test_philox_gives_the_published_numbers() -> None:
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones, ones)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox(pi, (0xA4093822, 0x299F31D0)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_the_drawn_number_is_24_bits_of_the_first_word() -> None:
    assert uniform(0, 0) == (0x6627E8D5 >> 8) / 2**24
    assert uniform(5 << 32 | 7, 9) == (philox((9, 0, 0, 0), (7, 5))[0] >> 8) / 2**24


def test_repetition_divides_what_is_positive_and_multiplies_what_is_not() -> None:
    logits = f32(2.0, -2.0, 1.0, 0.0)
    stages.penalties(logits, [0, 1, 0, 3], {}, Sampling(repetition_penalty=2.0))
    assert logits.tolist() == [1.0, -4.0, 1.0, 0.0]


def test_presence_counts_once_and_frequency_every_time() -> None:
    logits = f32(1.0, 1.0, 1.0)
    stages.penalties(logits, [], {0: 3, 2: 1}, Sampling(presence_penalty=0.5, frequency_penalty=0.25))
    assert logits.tolist() == [1.0 - 0.75 - 0.5, 1.0, 1.0 - 0.25 - 0.5]


def test_bias_is_added_to_its_tokens_alone() -> None:
    logits = f32(1.0, 1.0, 1.0)
    stages.bias(logits, Sampling(logit_bias={2: -100.0, 0: 0.5}))
    assert logits.tolist() == [1.5, 1.0, -99.0]


def test_top_k_keeps_the_largest_and_of_equals_the_lower_ids() -> None:
    c = candidates(1.0, 3.0, 2.0, 2.0, 2.0)
    assert stages.top_k(c, 1).ids.tolist() == [1]
    assert stages.top_k(c, 3).ids.tolist() == [1, 2, 3]
    assert stages.top_k(c, 0) is c
    assert stages.top_k(c, 9) is c
    assert stages.top_k(candidates(-0.0, 0.0, 0.0), 2).ids.tolist() == [0, 1]


def test_top_p_includes_the_token_that_crosses() -> None:
    c = of_probabilities(0.1, 0.4, 0.2, 0.3)
    assert stages.top_p(c, 0.0).ids.tolist() == [1]
    assert stages.top_p(c, 0.39).ids.tolist() == [1]
    assert stages.top_p(c, 0.5).ids.tolist() == [1, 3]
    assert stages.top_p(c, 0.75).ids.tolist() == [1, 2, 3]
    assert stages.top_p(c, 0.95).ids.tolist() == [0, 1, 2, 3]
    assert stages.top_p(c, 1.0) is c


def test_top_p_of_equals_keeps_the_lower_ids() -> None:
    assert stages.top_p(candidates(*[1.0] * 10), 0.25).ids.tolist() == [0, 1, 2]


def test_top_p_counts_what_top_k_left_as_the_whole() -> None:
    c = stages.top_k(of_probabilities(0.4, 0.3, 0.2, 0.1), 2)
    assert stages.top_p(c, 0.55).ids.tolist() == [0]  # 0.4 of 0.7 is more than 0.55, 0.4 of 1 is not


def test_min_p_is_a_share_of_the_likeliest() -> None:
    c = of_probabilities(0.5, 0.26, 0.24)
    assert stages.min_p(c, 0.5).ids.tolist() == [0, 1]
    assert stages.min_p(c, 1.0).ids.tolist() == [0]
    assert stages.min_p(c, 0.0) is c


def test_the_filters_see_the_models_own_probabilities() -> None:
    values = {"temperature": 100.0, "top_k": 0, "top_p": 0.5, "min_p": 0.0}
    logits = f32(*np.log([0.6, 0.2, 0.1, 0.1]))  # at this temperature all four are nearly equal
    assert {pick(logits, Sampling(**values), seed=seed, position=0) for seed in range(50)} == {0}


def test_temperature_divides_and_never_overflows_upwards() -> None:
    assert stages.temperature(candidates(1.0, 3.0), 0.5).logits.tolist() == [-4.0, 0.0]
    assert stages.temperature(candidates(-3e38, 3e38), 1e-30).logits.tolist() == [-np.inf, 0.0]


def test_a_draw_walks_the_ids_upwards_until_the_sum_exceeds_the_number() -> None:
    c = candidates(0.0, 0.0, 0.0, 0.0)
    assert [stages.draw(c, u) for u in (0.0, 0.2499, 0.25, 0.5, 0.999999)] == [0, 0, 1, 2, 3]
    assert stages.draw(Candidates(np.array([3, 9]), f32(0.0, 0.0)), 0.5) == 9


def test_the_total_adds_lanes_by_id_and_then_the_tree() -> None:
    weights = f32(1.0, 2.0**-30, 2.0**-30, 2.0**-30)
    for ids in ([0, 16, 32, 48], [0, 1, 2, 3], [0, 8, 4, 12]):
        lanes = [0.0] * 16
        for token, weight in zip(ids, weights, strict=True):
            lanes[token % 16] += float(weight)
        for half in (8, 4, 2, 1):
            lanes = [lanes[i] + lanes[i + half] for i in range(half)]
        assert Candidates(np.array(ids), weights).total(weights) == lanes[0]


def test_temperature_zero_takes_the_largest_and_of_equals_the_lowest_id() -> None:
    greedy = {**OFF, "temperature": 0.0, "top_k": 1, "top_p": 0.1}
    assert pick(f32(1.0, 5.0, 5.0), Sampling(**greedy), seed=3, position=4) == 1
    assert pick(f32(-0.0, 0.0), Sampling(**greedy), seed=3, position=4) == 0
    assert pick(f32(1.0, 5.0), Sampling(**{**OFF, "temperature": 1e-50}), seed=3, position=4) == 1  # 0 as a float32


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_give_no_token(wrong: float, temperature: float) -> None:
    for where in range(3):
        logits = f32(1.0, 2.0, 3.0)
        logits[where] = wrong
        assert pick(logits, Sampling(**{**OFF, "temperature": temperature}), seed=0, position=0) == NO_TOKEN


def test_draws_follow_the_probabilities() -> None:
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    counts = np.bincount(
        [pick(f32(*np.log(shares)), Sampling(**OFF), seed=1, position=i) for i in range(4000)], minlength=4
    )
    deviation = (counts - 4000 * shares) / np.sqrt(4000 * shares * (1 - shares))
    assert np.abs(deviation).max() < 4


logit_rows = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=70).map(lambda v: np.array(v, np.float32))


@given(
    logit_rows,
    st.floats(0.01, 5),
    st.integers(0, 80),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**31),
)
def test_the_token_is_one_that_every_filter_keeps(
    logits: NDArray[np.float32], temperature: float, k: int, p: float, least: float, seed: int, position: int
) -> None:
    token = pick(logits, Sampling(temperature=temperature, top_k=k, top_p=p, min_p=least), seed=seed, position=position)
    exact = np.exp(logits.astype(np.float64) - logits.max())
    larger = int((logits > logits[token]).sum())
    assert larger < (k or len(logits))
    assert exact[token] >= least * (1 - 1e-5)
    heavier = exact[exact > exact[token] * (1 + 1e-5)].sum()
    assert heavier <= p * exact.sum() * (1 + 1e-5)


@given(logit_rows, st.floats(0.1, 3), st.integers(0, 2**64 - 1), st.integers(0, 2**31))
def test_filters_that_are_off_change_nothing(
    logits: NDArray[np.float32], temperature: float, seed: int, position: int
) -> None:
    off = {**OFF, "temperature": temperature}
    wide = {**off, "top_k": len(logits)}
    assert pick(logits, Sampling(**off), seed=seed, position=position) == pick(
        logits, Sampling(**wide), seed=seed, position=position
    )


def only_odd(c: Candidates, on: int) -> Candidates:
    return c.only(c.ids % 2 == 1) if on else c


@dataclass(frozen=True, slots=True)
class OddSampling(Sampling):
    only_odd: int = 0


@pytest.mark.native
def test_a_stage_without_a_native_twin_works_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field, a function and its row in STAGES are enough; the sequence beside it is still picked natively."""
    monkeypatch.setattr(stages, "STAGES", (Stage(only_odd, off=0, native=False), *stages.STAGES))
    plain, odd = (OddSampling(temperature=1.0, top_k=0, only_odd=on) for on in (0, 1))
    engine = Engine(Fake())
    streams = [engine.add(asked(PROMPT, tokens=12, sampling=how)) for how in (plain, odd)]
    work_off(engine)
    natively, in_numpy = (said(list(stream)) for stream in streams)
    assert all(token % 2 == 1 for token in in_numpy) and len(in_numpy) == 12
    assert natively == alone(PROMPT, plain, 1, len(PROMPT) + 12, frozenset(), 32) != in_numpy
    assert in_numpy == alone(PROMPT, odd, 1, len(PROMPT) + 12, frozenset(), 32)
