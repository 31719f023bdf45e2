"""How many replicas a fleet needs, by what waits at its gate: a pure function of what was seen so far.

The number to scale by is the work that waits (seconds of prompts, requests without a place), not the CPU, which every
answer takes all of, nor the count of requests, which may have five tokens or fifty thousand.

A need that lasts is met, one that passes is not: more replicas come when every look of the last `up_s` asked for them,
fewer when none of the last `down_s` asked for as many. What calls for more lies well above what allows fewer, so that
a load in between changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

QUEUED_S = 1.0  # of prompts that wait: more calls for more replicas
CALM_S = 0.3  # that may wait where there are fewer
CALM_SHARE = 0.7  # of the places that may be taken where there are fewer
GROWTH = 2  # times as many at once


@dataclass(frozen=True, slots=True)
class Load:
    """What a gate tells of one model. queued_s: to compute the prompts that wait, by all replicas together.

    running, waiting: requests that have a place, and those in line for one. slots: the places of all replicas.
    """

    replicas: int
    queued_s: float
    running: int
    waiting: int
    slots: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How few and how many there may be, and for how many seconds a need must last."""

    least: int
    most: int
    up_s: float = 10.0
    down_s: float = 300.0

    def clamp(self, count: int) -> int:
        return min(max(count, self.least), self.most)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look asked for: at least `low` replicas, and no more than `high`."""

    at_s: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How many are wanted, and the looks since that was decided."""

    wanted: int
    looks: tuple[Look, ...] = ()


def decide(scale: Scale, load: Load, bounds: Bounds, now_s: float) -> Scale:
    """The scale after one more look at the load."""
    wanted = bounds.clamp(scale.wanted)
    if not load.replicas or not load.slots:  # nobody is there who could be too much or too little
        return replace(scale, wanted=wanted)
    look = Look(now_s, bounds.clamp(_need(load, QUEUED_S, 1.0)), bounds.clamp(_need(load, CALM_S, CALM_SHARE)))
    kept = now_s - max(bounds.up_s, bounds.down_s)
    older = [one for one in scale.looks if one.at_s <= kept]
    # The last look before the longest window stays, which tells that the window is full.
    looks = (*older[-1:], *(one for one in scale.looks if one.at_s > kept), look)
    if load.replicas >= wanted and (asked := _since(looks, now_s - bounds.up_s)):
        low = min(one.low for one in asked)
        if low > wanted:  # not before those that were wanted are there
            return Scale(bounds.clamp(min(low, GROWTH * wanted)))
    if asked := _since(looks, now_s - bounds.down_s):
        high = max(one.high for one in asked)
        if high < wanted:
            return Scale(high)
    return replace(scale, wanted=wanted, looks=looks)


def _need(load: Load, queued_s: float, share: float) -> int:
    """The replicas with which no more than this waits, and no more than this share of the places is taken."""
    places = share * load.slots / load.replicas
    return math.ceil(max(load.replicas * load.queued_s / queued_s, (load.running + load.waiting) / places) - 1e-9)


def _since(looks: tuple[Look, ...], begin_s: float) -> tuple[Look, ...]:
    """The looks of a window; none where they do not reach back to its beginning."""
    if not looks or looks[0].at_s > begin_s:
        return ()
    return tuple(one for one in looks if one.at_s >= begin_s)
