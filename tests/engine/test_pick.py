"""The native twin of the sampling stages gives the same token, always, in every instruction set."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from woolly import native
from woolly.engine import STAGES, pick
from woolly.engine.sampling import NOT_FINITE

pytestmark = pytest.mark.native

SETS: list[str] = list(native.machine()["sets"])  # type: ignore[call-overload]
SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 1000, 4095, 4096, 4097, 20_000)
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def flat(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    return random.standard_normal(n)


ROWS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "flat": flat,
    "peaked": lambda random, n: 5 * flat(random, n),
    "ties": lambda random, n: np.round(2 * flat(random, n)) / 2,
    "equal": lambda random, n: np.full(n, 1.5),
    "ascending": lambda random, n: np.sort(flat(random, n)),
    "both zeros": lambda random, n: np.where(random.random(n) < 0.5, 0.0, -0.0),
    "huge": lambda random, n: 1e30 * flat(random, n),
    "subnormal": lambda random, n: 1e-40 * flat(random, n),  # many weights are 1: a filter may drop the largest logit
}


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", ROWS)
def test_the_token_is_that_of_the_numpy_stages(kind: str, isa: str) -> None:
    random = np.random.default_rng(7)
    for case in range(60):
        n = int(random.choice(SIZES))
        logits = ROWS[kind](random, n).astype(np.float32)
        values: dict[str, Any] = {
            "temperature": float(random.choice([0.0, 0.01, 0.7, 1.0, 10.0, 1e-30, 1e-45, 1e-50])),
            "top_k": int(random.choice([0, 1, 2, 50, 500, 1024, 1025, n // 2, n, n + 5])),
            "top_p": float(random.choice([0.0, 0.1, 0.5, 0.9, 0.99, 1 - 1e-9, 1 - 1e-13, 1.0])),
            "min_p": float(random.choice([0.0, 0.01, 0.2, 1.0])),
        }
        where = {"seed": int(random.integers(2**63)) * 2, "position": int(random.integers(2**20))}
        assert native.pick(logits, **values, **where, isa=isa) == pick(logits, **values, **where), (
            case,
            n,
            values,
            where,
        )


@given(
    st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=100),
    st.floats(0, 3),
    st.integers(0, 110),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_any_row_and_any_values_give_the_same_token(
    row: list[float], temperature: float, k: int, p: float, least: float, seed: int, position: int
) -> None:
    logits = np.array(row, np.float32)
    values: dict[str, Any] = {"temperature": temperature, "top_k": k, "top_p": p, "min_p": least}
    token = pick(logits, seed=seed, position=position, **values)
    for isa in SETS:
        assert native.pick(logits, seed=seed, position=position, **values, isa=isa) == token


@pytest.mark.parametrize("isa", SETS)
def test_a_large_vocabulary_gives_the_same_token(isa: str) -> None:
    random = np.random.default_rng(3)
    logits = (4 * random.standard_normal(151_936)).astype(np.float32)
    for values in (OFF, {**OFF, "top_k": 50, "top_p": 0.9}, {**OFF, "top_p": 0.9}, {**OFF, "min_p": 0.05}):
        assert native.pick(logits, seed=1, position=2, **values, isa=isa) == pick(logits, seed=1, position=2, **values)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("wrong", [np.nan, -np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_give_no_token(wrong: float, isa: str) -> None:
    for n in (1, 16, 33, 5000):
        for where in {0, n // 2, n - 1}:
            for temperature in (0.0, 1.0):
                logits = np.zeros(n, np.float32)
                logits[where] = wrong
                values = {**OFF, "temperature": temperature}
                assert native.pick(logits, seed=0, position=0, **values, isa=isa) == NOT_FINITE


def test_every_stage_has_a_twin() -> None:
    known = inspect.signature(native.pick).parameters
    assert [stage.__name__ for stage in STAGES if stage.__name__ not in known] == []


@pytest.mark.parametrize(
    "values",
    [{"min_p": 1.1}, {"min_p": np.nan}, {"top_p": -0.1}, {"top_p": np.nan}, {"top_k": -1}, {"temperature": -1.0}],
)
def test_values_out_of_bounds_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(Exception, match="out of bounds"):
        native.pick(np.zeros(4, np.float32), seed=0, position=0, **{**OFF, **values})
