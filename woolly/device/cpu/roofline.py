"""The limits of this machine, measured: reading memory, meeting at a barrier, multiplying. For `bench` alone."""

from __future__ import annotations

from dataclasses import dataclass

import woolly._core as _core
from woolly.errors import BusyError


@dataclass(frozen=True, slots=True)
class Peak:
    """A loop of nothing but multiplications: multiply-adds a second of all threads together."""

    isa: str
    what: str  # its instructions
    integer: bool
    rate: float


class Buffer:
    """Memory to measure with, in huge pages (where the system gives them) or in small ones."""

    def __init__(self, nbytes: int, *, huge: bool = True) -> None:
        try:
            self._core = _core.Buffer(nbytes, huge)
        except _core.CoreError as error:
            raise BusyError(error.args[1], code=error.args[0]) from None
        self.nbytes = nbytes

    def touch(self, threads: int) -> float:
        """Bytes a second of the first touch of its pages; meaningful once."""
        return self.nbytes / self._core.touch(threads)

    def read(self, threads: int) -> float:
        """Bytes a second of reading it once, each thread one contiguous part."""
        return self.nbytes / self._core.read(threads)


def barrier_seconds(threads: int, times: int = 2000) -> float:
    """What one meeting of all threads costs, at the barrier that steps use."""
    return _core.barrier_seconds(threads, times) / times


def clock_hz() -> float:
    """Cycles a second of the core we are on."""
    return _core.clock_hz()


def peaks(threads: int) -> list[Peak]:
    """Each loop that this machine can run, once; a few milliseconds each."""
    return [Peak(*row) for row in _core.peaks(threads)]
