"""Ratios on a noisy machine: A and B in alternating slices, never one after the other.

A quadruple is the slices A B B A: what drifts slowly (the clock, a neighbour, the place of the cores) falls on both
alike. The ratio of a quadruple is B's time over A's; the figure is the median over many, with its quartiles. A against
A comes first, and the quartiles of that are the noise: a difference inside of them is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from woolly.bench.figures import HIDDEN
from woolly.bench.state import Watch

QUADRUPLES = 24  # enough for quartiles; fewer where a slice is long
FEWEST = 3
NOISE = 0.05  # the largest spread of A against A, and the largest share of the processors for other processes
TRIES = 3

Slice = Callable[[], float]  # runs, and returns its seconds


@dataclass(frozen=True, slots=True)
class Quadruple:
    """Seconds of the slices A B B A, A being ours, and the share of the processors that others used."""

    ours_s: tuple[float, float]
    theirs_s: tuple[float, float]
    foreign: float

    @property
    def ratio(self) -> float:
        """The time of B over the time of A: how many times as fast A was."""
        return sum(self.theirs_s) / sum(self.ours_s)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The speed of A over the speed of B."""

    median: float
    quartiles: tuple[float, float]
    count: int
    wins: int  # quadruples in which A was faster
    disturbed: bool = field(metadata=HIDDEN)  # other processes took too much of the machine in a quarter of them

    @property
    def spread(self) -> float:
        return self.quartiles[1] - self.quartiles[0]


def compare(a: Slice, b: Slice, *, seconds: float, watch: Watch) -> list[Quadruple]:
    """Quadruples for about `seconds`, at least FEWEST and at most QUADRUPLES."""
    done: list[Quadruple] = []
    spent = 0.0
    while len(done) < FEWEST or (len(done) < QUADRUPLES and spent + spent / len(done) <= seconds):
        watch.begin()
        first, second, third, fourth = a(), b(), b(), a()
        done.append(Quadruple((first, fourth), (second, third), watch.foreign()))
        spent += first + second + third + fourth
    return done


def ratio_of(quadruples: Sequence[Quadruple]) -> Ratio:
    """The median, its quartiles, and how often A won."""
    ratios = [quadruple.ratio for quadruple in quadruples]
    busy = sum(quadruple.foreign > NOISE for quadruple in quadruples)
    low, _, high = quantiles(ratios, method="inclusive")
    return Ratio(
        median=median(ratios),
        quartiles=(low, high),
        count=len(ratios),
        wins=sum(ratio > 1 for ratio in ratios),
        disturbed=4 * busy >= len(ratios),
    )


def noise(a: Slice, *, seconds: float, watch: Watch) -> Ratio:
    """A against A, tried again where it spreads too much; the calmest try."""
    tries: list[Ratio] = []
    while not tries or (len(tries) < TRIES and tries[-1].spread > NOISE):
        tries.append(ratio_of(compare(a, a, seconds=seconds / TRIES, watch=watch)))
    return min(tries, key=lambda ratio: ratio.spread)


def noisy(noise: Ratio, *others: Ratio) -> bool:
    """Whether figures taken beside this noise are to be doubted."""
    return noise.spread > NOISE or any(ratio.disturbed for ratio in (noise, *others))


def faster(ratio: Ratio, noise: Ratio) -> bool:
    """Whether A is faster than B by more than the noise."""
    return ratio.quartiles[0] > noise.quartiles[1]
