"""The speed of the machine at this moment.

Two runs that are compared are minutes or months apart, and meanwhile a virtual machine's neighbours may take a third of
the memory's bandwidth. A token costs about what reading memory costs, so a read is timed with every slice, by NumPy: no
build of ours changes it. A product by BLAS would disturb the slice: its threads spin for a while after each call.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np

from woolly.bench.state import State, barrier_ns
from woolly.device import cpu

PROBE = (8 << 20, 256 << 20)  # least and most bytes of the buffer, which is otherwise as large as the weights
SUMMED = 32 << 20  # bytes for each thread, more than a cache holds
ROUNDS = 9


class Yardstick:
    def __init__(self, nbytes: int, threads: int) -> None:
        self._buffer = cpu.Buffer(min(max(nbytes, PROBE[0]), PROBE[1]))
        self._buffer.touch(threads)
        self.threads = threads
        self._parts = [np.ones(SUMMED // 4, np.float32) for _ in range(threads)]
        self._others = ThreadPoolExecutor(max(threads - 1, 1), thread_name_prefix="woolly-yardstick")

    def state(self) -> State:
        """Barrier and bandwidth of memory now; takes a few milliseconds."""
        return State(barrier_ns(self.threads), max(self._buffer.read(self.threads) for _ in range(3)) / 1e9)

    def read_gb_s(self, threads: int) -> float:
        """The bandwidth of memory: the best of a few reads."""
        return max(self._buffer.read(threads) for _ in range(5)) / 1e9

    def memory_s(self) -> float:
        """Seconds in which each thread sums SUMMED bytes, the median of a few; about 20 ms."""
        return median(self._sum_s() for _ in range(ROUNDS))

    def _sum_s(self) -> float:
        begun = time.perf_counter()
        others = [self._others.submit(np.add.reduce, part) for part in self._parts[1:]]
        np.add.reduce(self._parts[0])
        for other in others:
            other.result()
        return time.perf_counter() - begun
