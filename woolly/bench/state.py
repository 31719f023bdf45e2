"""The state of the machine beside a figure: what a barrier costs, how fast memory is read, who else is busy.

Two virtual cores may lie near each other (one cache, one way to memory) or far apart, and change places within seconds:
then a barrier costs nine times as much, and memory is read almost twice as fast. A figure without the state it was
taken in cannot be compared with another.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from woolly.device import cpu
from woolly.system import read_text

NEAR_NS = 100.0  # a barrier between cores that share a cache costs less, between others more
PROBE = 256 << 20  # bytes: several times as large as the caches


@dataclass(frozen=True, slots=True)
class State:
    """The cost of a barrier and the bandwidth of memory, measured in a few milliseconds."""

    barrier_ns: float
    read_gb_s: float

    @property
    def state(self) -> Literal["near", "far"]:
        """Whether the cores share a cache."""
        return "near" if self.barrier_ns < NEAR_NS else "far"


def barrier_ns(threads: int) -> float:
    """The best of a few tries: one in which the system had paused a thread says nothing about the cores."""
    return min(cpu.barrier_seconds(threads) for _ in range(5)) * 1e9


def probe(threads: int, *, nbytes: int = PROBE) -> tuple[State, int]:
    """The state of the machine by a buffer of its own, and how many bytes of the buffer lay in huge pages."""
    before = huge_pages()
    buffer = cpu.Buffer(nbytes)
    buffer.touch(threads)
    huge = max(0, huge_pages() - before)
    return State(barrier_ns(threads), max(buffer.read(threads) for _ in range(5)) / 1e9), huge


class Watch:
    """Measures the share of the processors that others use: all busy or stolen time, less that of this process and of
    the given ones. 0 where the system does not tell.
    """

    def __init__(self, ours: Collection[int] = (), *, root: Path = Path("/proc")) -> None:
        self._ours, self._root = ("self", *map(str, ours)), root
        self._before = self._ticks()

    def begin(self) -> None:
        self._before = self._ticks()

    def foreign(self) -> float:
        """The share of all processor time since `begin`."""
        busy, total, own = (now - before for now, before in zip(self._ticks(), self._before, strict=True))
        return max(0, busy - own) / total if total > 0 else 0.0

    def _ticks(self) -> tuple[int, int, int]:
        """Busy, all, and our own ticks of all processors together."""
        line = read_text(self._root / "stat").partition("\n")[0].split()
        if len(line) < 9 or line[0] != "cpu":
            return 0, 0, 0
        user, nice, system, idle, waiting, hard, soft, stolen = map(int, line[1:9])
        busy = user + nice + system + hard + soft + stolen
        own = 0
        for name in self._ours:
            # fields 14 and 15 are the ticks; the name before them, in parentheses, may contain spaces and brackets
            fields = read_text(self._root / name / "stat").rpartition(")")[2].split()
            own += sum(map(int, fields[11:13]))
        return busy, busy + idle + waiting, own


def load_average() -> float:
    """Processes that wanted to run in the last minute, ours included."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def processor(*, root: Path = Path("/proc")) -> str:
    """The name of the processor; on ARM that of the machine, if it has one, otherwise the architecture."""
    for line in read_text(root / "cpuinfo").splitlines():
        if line.startswith(("model name", "Model\t")):
            return line.partition(":")[2].strip()
    return os.uname().machine


def huge_pages(*, root: Path = Path("/proc")) -> int:
    """Bytes of this process that lie in huge pages."""
    for line in read_text(root / "self/smaps_rollup").splitlines():
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    return 0
