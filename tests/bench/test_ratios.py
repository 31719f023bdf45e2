"""bench.ratios: the arithmetic of comparisons, on slices made up by hand."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from woolly.bench import ratios
from woolly.bench.ratios import Quadruple, Ratio, compare, faster, noise, noisy, ratio_of
from woolly.bench.state import Watch


def quadruple(a: float, b: float, foreign: float = 0.0) -> Quadruple:
    return Quadruple((a, a), (b, b), foreign)


@pytest.fixture
def still(tmp_path: Path) -> Watch:
    """A machine that tells nothing about itself."""
    return Watch(root=tmp_path)


def test_a_ratio_is_the_speed_of_the_first_over_the_second() -> None:
    assert ratio_of([quadruple(1.0, 2.5)] * 3).median == 2.5


def test_both_slices_of_a_side_count() -> None:
    assert Quadruple((1.0, 3.0), (4.0, 4.0), 0.0).ratio == 2.0


def test_a_slow_drift_falls_on_both_sides_alike() -> None:
    drift = iter([1.0, 1.1, 1.2, 1.3])
    a, b, c, d = (next(drift) for _ in range(4))
    assert Quadruple((a, d), (b, c), 0.0).ratio == pytest.approx(1.0)


def test_the_figure_is_the_median_with_quartiles_and_wins() -> None:
    ratio = ratio_of([quadruple(1.0, r) for r in (0.9, 1.1, 1.2, 1.3, 9.0)])
    assert (ratio.median, ratio.quartiles, ratio.count, ratio.wins) == (1.2, (1.1, 1.3), 5, 4)


def test_one_slice_that_was_disturbed_does_not_move_the_figure() -> None:
    calm = [quadruple(1.0, 2.0)] * 9
    assert ratio_of([*calm, quadruple(50.0, 2.0)]).median == 2.0


def test_a_quartile_lies_between_its_neighbours() -> None:
    assert ratio_of([quadruple(1.0, r) for r in (4.0, 1.0, 3.0, 2.0)]).quartiles == (1.75, 3.25)


def test_slices_run_in_the_order_a_b_b_a(still: Watch) -> None:
    order: list[str] = []

    def slice_(name: str) -> float:
        order.append(name)
        return 1.0

    compare(lambda: slice_("a"), lambda: slice_("b"), seconds=0.0, watch=still)
    assert order == ["a", "b", "b", "a"] * ratios.FEWEST


def test_short_slices_are_repeated_up_to_a_bound_and_long_ones_within_the_time(still: Watch) -> None:
    assert len(compare(lambda: 0.001, lambda: 0.001, seconds=60.0, watch=still)) == ratios.QUADRUPLES
    assert len(compare(lambda: 2.0, lambda: 3.0, seconds=55.0, watch=still)) == 5


def test_ours_against_ours_is_tried_again_while_it_spreads(still: Watch) -> None:
    calls = 0
    times = cycle([1.0, 1.5, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0])

    def slice_() -> float:
        nonlocal calls
        calls += 1
        return next(times)

    ratio = noise(slice_, seconds=1e9, watch=still)
    assert calls == 4 * ratios.QUADRUPLES * ratios.TRIES
    assert ratio.spread > ratios.NOISE
    assert noisy(ratio)


def test_a_calm_machine_is_asked_once(still: Watch) -> None:
    ratio = noise(lambda: 1.0, seconds=1e9, watch=still)
    assert (ratio.median, ratio.spread, noisy(ratio)) == (1.0, 0.0, False)


def test_figures_are_noisy_where_others_were_busy_in_a_quarter_of_the_quadruples() -> None:
    calm = Ratio(1.0, (0.99, 1.01), 8, 4, False)
    few = ratio_of([quadruple(1, 1, 0.5)] + [quadruple(1, 1)] * 7)
    many = ratio_of([quadruple(1, 1, 0.5)] * 2 + [quadruple(1, 1)] * 6)
    assert not noisy(calm, few)
    assert noisy(calm, many)


def test_faster_means_beyond_the_noise() -> None:
    quiet = Ratio(1.0, (0.98, 1.02), 8, 4, False)
    assert faster(Ratio(1.1, (1.03, 1.2), 8, 8, False), quiet)
    assert not faster(Ratio(1.1, (1.01, 1.2), 8, 8, False), quiet)
