"""How many replicas a fleet needs: a lasting need is met, a passing one is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from woolly.fleet.scaling import Bounds, FleetLoad, Scale, decide

SLOTS = 16
BOUNDS = Bounds(1, 8, up_s=10, down_s=300)


def load(replicas: int, *, queued_s: float = 0.0, requests: int = 0) -> FleetLoad:
    """The load of replicas of 16 places with so many requests; those without a place wait."""
    slots = SLOTS * replicas
    return FleetLoad(replicas, queued_s, min(requests, slots), max(requests - slots, 0), slots)


def watch(scale: Scale, seconds: int, at: Callable[[int], FleetLoad], bounds: Bounds = BOUNDS, begin: int = 0) -> Scale:
    """Decide once a second for so many seconds."""
    for now in range(begin, begin + seconds):
        scale = decide(scale, at(scale.wanted), bounds, float(now))
    return scale


def test_prompts_that_wait_for_longer_than_a_second_bring_one_more_after_ten() -> None:
    assert watch(Scale(1), 10, lambda n: load(n, queued_s=1.5)).wanted == 1
    assert watch(Scale(1), 11, lambda n: load(n, queued_s=1.5)).wanted == 2


def test_requests_without_a_place_bring_as_many_as_would_hold_them() -> None:
    assert watch(Scale(2), 11, lambda n: load(n, requests=45)).wanted == 3


def test_a_moment_without_need_begins_the_ten_seconds_anew() -> None:
    scale = watch(Scale(1), 9, lambda n: load(n, queued_s=5))
    scale = watch(scale, 1, lambda n: load(n, queued_s=0.5), begin=9)
    assert watch(scale, 9, lambda n: load(n, queued_s=5), begin=10).wanted == 1
    assert watch(scale, 12, lambda n: load(n, queued_s=5), begin=10).wanted == 2


def test_a_long_queue_doubles_them_and_waits_until_those_are_there() -> None:
    scale = watch(Scale(1), 11, lambda n: load(n, queued_s=60))
    assert scale.wanted == 2
    assert watch(scale, 100, lambda n: load(1, queued_s=60), begin=11).wanted == 2  # the second is still loading
    assert watch(scale, 11, lambda n: load(n, queued_s=60), begin=11).wanted == 4


def test_calm_of_five_minutes_ends_those_that_nobody_needed_in_them() -> None:
    calm = watch(Scale(4), 300, lambda n: load(n))
    assert calm.wanted == 4
    assert watch(calm, 1, lambda n: load(n), begin=300).wanted == 1
    busy = watch(Scale(4), 299, lambda n: load(n, requests=2))
    busy = watch(busy, 1, lambda n: load(n, requests=20), begin=299)  # 20 of two replicas' 32 places
    assert watch(busy, 1, lambda n: load(n, requests=2), begin=300).wanted == 2


def test_a_load_between_need_and_calm_changes_nothing() -> None:
    for between in (load(2, queued_s=0.6), load(2, requests=24), load(2, requests=32)):
        assert watch(Scale(2), 1000, lambda n, between=between: between).wanted == 2  # type: ignore[misc]


def test_with_no_replica_there_nothing_is_known_and_nothing_changes() -> None:
    assert watch(Scale(3), 1000, lambda n: FleetLoad(0, 0.0, 0, 5, 0)).wanted == 3


@pytest.mark.parametrize(("begun", "wanted"), [(0, 2), (2, 2), (5, 5), (9, 6)])
def test_the_bounds_hold_from_the_first_look_on(begun: int, wanted: int) -> None:
    assert decide(Scale(begun), load(3), Bounds(2, 6), 0.0).wanted == wanted


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 100), st.integers(0, 300)), max_size=80))
def test_whatever_happens_the_bounds_hold_and_little_is_remembered(seen: list[tuple[int, float, int]]) -> None:
    bounds, scale = Bounds(2, 6, up_s=3, down_s=10), Scale(2)
    for now, (replicas, queued_s, requests) in enumerate(seen):
        before = scale.wanted
        scale = decide(scale, load(replicas, queued_s=queued_s, requests=requests), bounds, float(now))
        assert 2 <= scale.wanted <= min(6, 2 * before)
        assert len(scale.samples) <= 12


@given(st.integers(1, 6), st.floats(0, 0.9), st.integers(0, 90))
def test_a_steady_load_comes_to_rest(begun: int, queued_s: float, requests: int) -> None:
    """The relief by one more replica does not count as calm: no steady load makes replicas come and go."""
    work_s = queued_s * begun  # seconds of queued work, which all replicas share

    def at(count: int) -> FleetLoad:
        return load(count, queued_s=work_s / count, requests=requests)

    bounds = Bounds(1, 8, up_s=3, down_s=5)
    rest = watch(Scale(begun), 100, at, bounds)
    scale = rest
    for now in range(100, 160):
        scale = decide(scale, at(scale.wanted), bounds, float(now))
        assert scale.wanted == rest.wanted
