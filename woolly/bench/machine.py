"""The limits of this machine: what no model can beat.

Decoding cannot be faster than memory is read, a prompt not faster than the multiplications of its instruction set, and
a step has a few barriers a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from woolly import native
from woolly.bench.figures import FLAT, Figure
from woolly.bench.state import State, barrier_ns, huge_pages, load_average, processor

BUFFER = 1 << 30  # bytes that are read; far more than any cache
ROUNDS = 20  # of the loops of multiplications, which take a millisecond


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine beside a report. The last four stand only where they were measured."""

    state: State = field(metadata=FLAT)
    threads: int
    processor: str
    touch_gb_s: float  # of the first touch of memory
    load_average: float
    clock_ghz: float | None = None
    huge_mb: float | None = None  # of the buffer that asked for huge pages, those that are
    isa: str | None = None
    foreign_share: float | None = None  # of the processors, what others used during the tests


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading by so many threads, from huge pages or small ones."""

    threads: int
    pages: Literal["huge", "small"]
    gb_s: Figure


@dataclass(frozen=True, slots=True)
class Multiplying:
    """A loop that does nothing but multiply and add."""

    isa: str
    what: str
    kind: Literal["int8", "f32"]
    threads: int
    gmac_s: Figure
    mac_per_cycle: float  # of one core


@dataclass(frozen=True, slots=True)
class Roofline:
    """All that was measured."""

    machine: Machine
    read: tuple[Reading, ...]
    multiply: tuple[Multiplying, ...]


def measure(threads: int, *, repetitions: int = 5, nbytes: int = BUFFER) -> Roofline:
    """The limits by one thread and by all of them; a few seconds."""
    teams = sorted({1, threads})
    before = huge_pages()
    reading = []
    touch = huge = read = 0.0
    for large in (True, False):
        buffer = native.Buffer(nbytes, huge=large)
        rate = buffer.touch(threads)
        if large:
            touch, huge = rate, max(0, huge_pages() - before)
        for team in teams:
            runs = tuple(buffer.read(team) / 1e9 for _ in range(repetitions))
            reading.append(Reading(team, "huge" if large else "small", Figure(runs)))
        if large:
            read = reading[-1].gb_s.best  # by all threads
        del buffer
    machine = Machine(
        State(barrier_ns(threads), read), threads, processor(), touch / 1e9, load_average(), native.clock_hz() / 1e9,
        huge / 1e6,
    )  # fmt: skip
    return Roofline(machine, tuple(reading), tuple(row for team in teams for row in multiplying(team, repetitions)))


def multiplying(threads: int, repetitions: int) -> list[Multiplying]:
    """Each loop of multiplications that this machine can run, in turn."""
    rounds = [native.peaks(threads) for _ in range(max(ROUNDS, repetitions))]
    cycles = threads * native.clock_hz()
    return [
        Multiplying(
            one.isa,
            one.what,
            "int8" if one.integer else "f32",
            threads,
            Figure(tuple(found[i].rate / 1e9 for found in rounds)),
            max(found[i].rate for found in rounds) / cycles,
        )
        for i, one in enumerate(rounds[0])
    ]
