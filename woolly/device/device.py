"""Device: what computes, as a row of a table: what plan must know of it, and how it makes a runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from woolly.device.queue import DeviceQueue
from woolly.device.runner import Runner
from woolly.gguf import GgufFile
from woolly.plan import Program, Target


class MakeRunner(Protocol):
    """Pack the weights of a program and give what runs it.

    pages: of each page group. slots: for what sequences carry, by default one for each sequence of a step; those of
    `snapshots` come behind them. isa: one of the device's instruction sets, by default the best. progress: called with
    the bytes packed and those of all weights.
    """

    def __call__(
        self,
        program: Program,
        file: GgufFile,
        *,
        threads: int,
        pages: Sequence[int],
        slots: int | None = None,
        snapshots: int = 0,
        isa: str = ...,
        progress: Callable[[int, int], None] | None = None,
    ) -> Runner: ...


@dataclass(frozen=True, slots=True)
class Device:
    """A row of DEVICES. Every one of `sets` gives the same bits: those of the ops."""

    name: str
    target: Target  # what it has, for plan
    sets: tuple[str, ...]  # its instruction sets, the best last
    memory: Callable[[], int]  # bytes that are free on it
    queue: DeviceQueue  # its engines take turns
    runner: MakeRunner
