"""The native twin of the sampling stages gives the same token, always, in every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from woolly.device import cpu
from woolly.device.runner import PICK_ROW
from woolly.engine import STAGES, pick
from woolly.engine.sampling.stages import NO_TOKEN
from woolly.request import Sampling

pytestmark = pytest.mark.native

SETS: list[str] = list(cpu.machine()["sets"])  # type: ignore[call-overload]
SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 1000, 4095, 4096, 4097, 20_000)
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def how(*rows: dict[str, Any]) -> NDArray[np.uint8]:
    """The bytes of rows to pick, each by default the first row of logits without a mask."""
    picks = np.zeros(len(rows), PICK_ROW)
    for at, row in zip(picks, rows, strict=True):
        for name, value in ({"row": 0, "mask": -1, "seed": 0, "position": 0} | OFF | row).items():
            at[name] = value
    return picks.view(np.uint8)


def native_token(logits: NDArray[np.float32], isa: str, **values: Any) -> int:
    [token] = cpu.pick(logits[None], how(values), 1, isa=isa)
    return token


def numpy_token(logits: NDArray[np.float32], *, seed: int = 0, position: int = 0, **values: Any) -> int:
    return pick(logits, Sampling(**values), seed=seed, position=position)


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
    "subnormal": lambda random, n: 1e-40 * flat(random, n),  # many weights round to 1: a filter may drop the largest
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
        assert native_token(logits, isa, **values, **where) == numpy_token(logits, **values, **where), (
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
def test_any_row_and_any_values_give_the_same_token(
    row: list[float], temperature: float, k: int, p: float, least: float, seed: int, position: int
) -> None:
    logits = np.array(row, np.float32)
    values: dict[str, Any] = {"temperature": temperature, "top_k": k, "top_p": p, "min_p": least}
    token = numpy_token(logits, seed=seed, position=position, **values)
    for isa in SETS:
        assert native_token(logits, isa, seed=seed, position=position, **values) == token


@pytest.mark.parametrize("isa", SETS)
def test_a_large_vocabulary_gives_the_same_token(isa: str) -> None:
    random = np.random.default_rng(3)
    logits = (4 * random.standard_normal(151_936)).astype(np.float32)
    for values in (OFF, {**OFF, "top_k": 50, "top_p": 0.9}, {**OFF, "top_p": 0.9}, {**OFF, "min_p": 0.05}):
        where = {"seed": 1, "position": 2}
        assert native_token(logits, isa, **values, **where) == numpy_token(logits, **values, **where)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("wrong", [np.nan, -np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_give_no_token(wrong: float, isa: str) -> None:
    for n in (1, 16, 33, 5000):
        for where in {0, n // 2, n - 1}:
            for temperature in (0.0, 1.0):
                logits = np.zeros(n, np.float32)
                logits[where] = wrong
                values = {**OFF, "temperature": temperature}
                assert native_token(logits, isa, **values) == NO_TOKEN


def test_a_stage_with_a_twin_is_a_field_of_the_native_row_in_the_same_order() -> None:
    assert PICK_ROW.names is not None
    assert PICK_ROW.names[4:] == tuple(stage.name for stage in STAGES if stage.native)


@pytest.mark.parametrize("isa", SETS)
def test_rows_of_a_step_are_picked_at_once_each_by_its_own_values(isa: str) -> None:
    random = np.random.default_rng(5)
    logits = random.standard_normal((7, 3000)).astype(np.float32)
    rows = [
        {"row": int(random.integers(7)), "seed": seed, "position": seed * 3, "temperature": seed / 8, "top_k": 5 * seed}
        for seed in range(16)
    ]
    alone = [numpy_token(logits[row.pop("row")], **(OFF | row)) for row in [dict(row) for row in rows]]
    assert cpu.pick(logits, how(*rows), len(rows), isa=isa) == alone


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("kind", ROWS)
def test_a_mask_leaves_the_tokens_that_it_allows(kind: str, isa: str) -> None:
    random = np.random.default_rng(11)
    for _ in range(40):
        n = int(random.choice(SIZES))
        logits = ROWS[kind](random, n).astype(np.float32)
        share = random.choice([0.0, 0.001, 0.1, 0.9])
        masks = np.zeros((3, -(-n // 32)), np.uint32)
        for token in np.flatnonzero(random.random(n) < share):
            masks[1, token // 32] |= np.uint32(1 << (token % 32))
        values: dict[str, Any] = {
            "temperature": float(random.choice([0.0, 0.7, 1.0])),
            "top_k": int(random.choice([0, 1, 50, n])),
            "top_p": float(random.choice([0.5, 0.9, 1.0])),
            "min_p": float(random.choice([0.0, 0.2])),
        }
        [token] = cpu.pick(logits[None], how({**values, "mask": 1, "seed": 9}), 1, masks, isa=isa)
        assert token == pick(logits, Sampling(**values), seed=9, position=0, mask=masks[1])
        assert token == NO_TOKEN or masks[1, token // 32] >> np.uint32(token % 32) & 1


@pytest.mark.parametrize(
    "values",
    [{"min_p": 1.1}, {"min_p": np.nan}, {"top_p": -0.1}, {"top_p": np.nan}, {"top_k": -1}, {"temperature": -1.0}],
)
def test_values_out_of_bounds_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(Exception, match="out of bounds"):
        native_token(np.zeros(4, np.float32), cpu.ISA, **values)


@pytest.mark.parametrize("row", [{"row": 1}, {"row": -1}, {"mask": 1}, {"mask": -2}, {"mask": 0}])
def test_rows_and_masks_that_are_not_there_are_refused(row: dict[str, int]) -> None:
    masks = np.zeros((1, 1), np.uint32)  # too short for 33 tokens
    with pytest.raises(Exception, match="there is no such"):
        cpu.pick(np.zeros((1, 33), np.float32), how(row), 1, masks)
