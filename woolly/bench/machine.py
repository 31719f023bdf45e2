"""The limits of this machine, which no model can exceed.

Decoding cannot be faster than memory is read, a prompt not faster than the multiplications of its instruction set, and
a step has a few barriers a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from woolly.bench.figures import FLAT, Figure
from woolly.bench.state import State, barrier_ns, huge_pages, load_average, processor
from woolly.device import cpu

BUFFER = 1 << 30  # bytes that are read; far more than any cache
ROUNDS = 20  # how often each loop of multiplications runs; one takes a millisecond


@dataclass(frozen=True, slots=True)
class Machine:
    """The state of the machine during a report. Those fields that were not measured are None."""

    state: State = field(metadata=FLAT)
    threads: int
    processor: str
    touch_gb_s: float  # bandwidth of the first touch of fresh memory
    load_average: float
    clock_ghz: float | None = None
    huge_mb: float | None = None  # how much of a buffer that asked for huge pages got them
    isa: str | None = None
    foreign_share: float | None = None  # share of the processors that other processes used during the tests


@dataclass(frozen=True, slots=True)
class ReadRate:
    """The bandwidth of reads by so many threads, from huge pages or small ones."""

    threads: int
    pages: Literal["huge", "small"]
    gb_s: Figure


@dataclass(frozen=True, slots=True)
class MultiplyRate:
    """A loop that does nothing but multiply and add."""

    isa: str
    what: str
    kind: Literal["int8", "f32"]
    threads: int
    gmac_s: Figure
    mac_per_cycle: float  # for one core


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of reading and of multiplying, with the machine's state."""

    machine: Machine
    read: tuple[ReadRate, ...]
    multiply: tuple[MultiplyRate, ...]


def measure_roofline(threads: int, *, repetitions: int = 5, nbytes: int = BUFFER) -> Roofline:
    """The limits by one thread and by all of them; a few seconds."""
    thread_counts = sorted({1, threads})
    before = huge_pages()
    reading = []
    touch = huge = read = 0.0
    for large in (True, False):
        buffer = cpu.Buffer(nbytes, huge=large)
        rate = buffer.touch(threads)
        if large:
            touch, huge = rate, max(0, huge_pages() - before)
        for count in thread_counts:
            runs = tuple(buffer.read(count) / 1e9 for _ in range(repetitions))
            reading.append(ReadRate(count, "huge" if large else "small", Figure(runs)))
        if large:
            read = reading[-1].gb_s.best  # by all threads
        del buffer
    machine = Machine(
        State(barrier_ns(threads), read), threads, processor(), touch / 1e9, load_average(), cpu.clock_hz() / 1e9,
        huge / 1e6,
    )  # fmt: skip
    return Roofline(
        machine, tuple(reading), tuple(row for count in thread_counts for row in multiply_rates(count, repetitions))
    )


def multiply_rates(threads: int, repetitions: int) -> list[MultiplyRate]:
    """Each loop of multiplications that this machine can run, in turn."""
    rounds = [cpu.peaks(threads) for _ in range(max(ROUNDS, repetitions))]
    cycles = threads * cpu.clock_hz()
    return [
        MultiplyRate(
            one.isa,
            one.what,
            "int8" if one.integer else "f32",
            threads,
            Figure(tuple(peaks[i].rate / 1e9 for peaks in rounds)),
            max(peaks[i].rate for peaks in rounds) / cycles,
        )
        for i, one in enumerate(rounds[0])
    ]
