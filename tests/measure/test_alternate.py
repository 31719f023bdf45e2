"""Two checkouts in turns: the order of the slices, the ratios of the rounds, and what the table says of them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import alternate  # noqa: E402

BEFORE, AFTER = Path("before"), Path("after")
RATES = {BEFORE: (100.0, 110.0, 90.0, 100.0, 80.0, 120.0), AFTER: (90.0, 90.0, 110.0, 80.0, 50.0, 110.0)}


def compared(name: str) -> tuple[alternate.Comparison, list[str]]:
    """Three rounds of one figure, and the checkouts in the order in which they ran."""
    rates, ran = {side: list(values) for side, values in RATES.items()}, []

    def run(checkout: Path) -> alternate.Figures:
        ran.append(checkout.name)
        return {name: rates[checkout].pop(0)}

    return alternate.compare("a model", run, BEFORE, AFTER, 3)[0], ran


def test_a_round_is_a_b_b_a_and_gives_one_ratio() -> None:
    row, ran = compared("decode, tokens/s")
    assert ran == ["before", "after", "after", "before"] * 3
    assert row.ratios == [180 / 210, 1.0, 160 / 200]
    assert (row.before, row.after, row.quartiles[1]) == (RATES[BEFORE], RATES[AFTER], 180 / 210)


def test_what_is_worse_by_more_than_the_noise_has_a_star_and_a_rate_is_worse_where_it_is_lower() -> None:
    steady, lower, unsteady = (100.0, 101.0) * 3, (90.0, 91.0) * 3, (80.0, 100.0) * 3
    rows = [
        alternate.Comparison("a model", name, before, after)
        for name in ("decode, tokens/s", "Python per step, us")
        for before, after in ((steady, lower), (lower, steady), (steady, unsteady))
    ]
    assert [row.worse for row in rows] == [True, False, False, False, True, False]
    _, title, *lines = alternate.table(rows)
    assert (title, [line.endswith("*") for line in lines]) == ("a model", [row.worse for row in rows])
    assert "0.900 (0.900 to 0.900)     1.1 %" in lines[0]


def test_the_json_has_every_slice() -> None:
    rows = [compared("decode, tokens/s")[0]]
    data = json.loads(json.dumps(alternate.as_json(rows, Namespace(before=BEFORE, after=AFTER, rounds=3))))
    assert data["figures"][0]["after"] == [*RATES[AFTER]] and data["rounds"] == 3


def test_the_tests_of_the_bench_have_names_that_one_can_read() -> None:
    names = [alternate.speed_name(test) for test in ("pp512", "tg64", "tg64x8")]
    assert names == ["prompt of 512", "decode", "decode, 8 sequences"]
