"""The limits of this machine: what no model can beat.

Decoding cannot be faster than memory is read, a prompt not faster than the multiplications of its instruction set, and
a step has a few barriers a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from woolly import native
from woolly.bench.state import State, barrier_ns, huge_pages, load_average, processor

BUFFER = 1 << 30  # bytes that are read; far more than any cache
ROUNDS = 20  # of the loops of multiplications, which take a millisecond


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate, run by run."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.runs)

    @property
    def best(self) -> float:
        return max(self.runs)


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes a second by so many threads, from huge pages or small ones."""

    threads: int
    huge: bool
    rate: Figure


@dataclass(frozen=True, slots=True)
class Multiplying:
    """Multiply-adds a second of a loop that does nothing else."""

    isa: str
    what: str
    integer: bool
    threads: int
    rate: Figure

    def per_cycle(self, clock_hz: float) -> float:
        """Of one core."""
        return self.rate.best / self.threads / clock_hz


@dataclass(frozen=True, slots=True)
class Limits:
    """All that was measured."""

    processor: str
    threads: int
    clock_hz: float
    huge_bytes: int  # of the buffer that asked for huge pages, those that are
    touch: float  # bytes a second of the first touch of huge pages
    barrier_ns: float
    reading: tuple[Reading, ...]
    multiplying: tuple[Multiplying, ...]
    load: float

    @property
    def state(self) -> State:
        """The state of the machine by these figures."""
        widest = max((row for row in self.reading if row.huge), key=lambda row: row.threads)
        return State(self.barrier_ns, widest.rate.best / 1e9)


def measure(threads: int, *, repetitions: int = 5, nbytes: int = BUFFER) -> Limits:
    """The limits by one thread and by all of them; a few seconds."""
    teams = sorted({1, threads})
    before = huge_pages()
    reading = []
    touch = huge = 0.0
    for large in (True, False):
        buffer = native.Buffer(nbytes, huge=large)
        rate = buffer.touch(threads)
        if large:
            touch, huge = rate, max(0, huge_pages() - before)
        for team in teams:
            runs = tuple(buffer.read(team) for _ in range(repetitions))
            reading.append(Reading(team, large, Figure(runs)))
        del buffer
    return Limits(
        processor=processor(),
        threads=threads,
        clock_hz=native.clock_hz(),
        huge_bytes=int(huge),
        touch=touch,
        barrier_ns=barrier_ns(threads),
        reading=tuple(reading),
        multiplying=tuple(row for team in teams for row in multiplying(team, max(ROUNDS, repetitions))),
        load=load_average(),
    )


def multiplying(threads: int, repetitions: int) -> list[Multiplying]:
    """Each loop of multiplications that this machine can run, in turn."""
    rounds = [native.peaks(threads) for _ in range(repetitions)]
    return [
        Multiplying(one.isa, one.what, one.integer, threads, Figure(tuple(found[i].rate for found in rounds)))
        for i, one in enumerate(rounds[0])
    ]
