"""How many replicas a fleet needs, by what waits at its gateway: a pure function of the samples so far.

The number to scale by is the work that waits (seconds of prompts, requests without a slot), not the CPU, which a
single answer uses fully, nor the count of requests, which may have five tokens or fifty thousand.

A need that lasts is met, one that passes is not: more replicas come when every sample of the last `up_s` asked for
them, fewer when none of the last `down_s` asked for as many. The load that calls for more is well above the load that
allows fewer, and a load in between changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

QUEUED_S = 1.0  # seconds of waiting prompts above which more replicas are wanted
CALM_S = 0.3  # seconds of prompts that may wait after scaling down
CALM_SHARE = 0.7  # share of the slots that may be taken after scaling down
GROWTH = 2  # one decision wants at most so many times the replicas of the last


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """How busy the replicas of one model are. queued_s: until all together have computed the waiting prompts.

    running, waiting: requests that have a slot, and those that wait for one. slots: those of all replicas.
    """

    replicas: int
    queued_s: float
    running: int
    waiting: int
    slots: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How few and how many replicas there may be, and for how many seconds a need must last."""

    least: int
    most: int
    up_s: float = 10.0
    down_s: float = 300.0

    def clamp(self, count: int) -> int:
        return min(max(count, self.least), self.most)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the load at one moment asked for: at least `low` replicas, and no more than `high`."""

    at_s: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How many replicas are wanted, and the samples since that was decided."""

    wanted: int
    samples: tuple[Sample, ...] = ()


def decide(scale: Scale, load: FleetLoad, bounds: Bounds, now_s: float) -> Scale:
    """The scale after one more sample of the load."""
    wanted = bounds.clamp(scale.wanted)
    if not load.replicas or not load.slots:  # without replicas there is no load to judge
        return replace(scale, wanted=wanted)
    sample = Sample(now_s, bounds.clamp(_need(load, QUEUED_S, 1.0)), bounds.clamp(_need(load, CALM_S, CALM_SHARE)))
    window_begin_s = now_s - max(bounds.up_s, bounds.down_s)
    older = [one for one in scale.samples if one.at_s <= window_begin_s]
    # The last sample before the longest window stays: it proves that the window is full.
    samples = (*older[-1:], *(one for one in scale.samples if one.at_s > window_begin_s), sample)
    if load.replicas >= wanted and (asked := _since(samples, now_s - bounds.up_s)):
        low = min(one.low for one in asked)
        if low > wanted:  # asked for while all wanted replicas were there
            return Scale(bounds.clamp(min(low, GROWTH * wanted)))
    if asked := _since(samples, now_s - bounds.down_s):
        high = max(one.high for one in asked)
        if high < wanted:
            return Scale(high)
    return replace(scale, wanted=wanted, samples=samples)


def _need(load: FleetLoad, queued_s: float, share: float) -> int:
    """The replicas with which no more than this waits, and no more than this share of the slots is taken."""
    slots = share * load.slots / load.replicas
    return math.ceil(max(load.replicas * load.queued_s / queued_s, (load.running + load.waiting) / slots) - 1e-9)


def _since(samples: tuple[Sample, ...], begin_s: float) -> tuple[Sample, ...]:
    """The samples of a window; none where they do not reach back to its beginning."""
    if not samples or samples[0].at_s > begin_s:
        return ()
    return tuple(one for one in samples if one.at_s >= begin_s)
