"""Runner: a loaded model that computes one step at a time, as its engine knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from woolly.device.batch import Batch, StepSize
from woolly.device.queue import DeviceQueue
from woolly.plan import Output

# How one token is chosen, exactly as kernels.h has it.
PICK_ROW = np.dtype(
    [
        ("row", np.int32),  # of the logits
        ("mask", np.int32),  # row of the masks; -1: every token is allowed
        ("seed", np.uint64),
        ("position", np.uint32),
        ("top_k", np.int32),
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("temperature", np.float32),
    ],
    align=True,
)


class Runner(Protocol):
    """What computes a step: that of a device, or a stand-in of the tests. For one thread at once; `stop` for any."""

    @property
    def isa(self) -> str: ...
    @property
    def queue(self) -> DeviceQueue: ...
    @property
    def rows(self) -> int: ...
    @property
    def wants(self) -> int: ...
    @property
    def sequences(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def page(self) -> int: ...
    @property
    def pages(self) -> tuple[int, ...]: ...
    @property
    def page_bytes(self) -> tuple[int, ...]: ...
    @property
    def pool_bytes(self) -> int: ...
    @property
    def windows(self) -> tuple[int, ...]: ...
    @property
    def slots(self) -> int: ...
    @property
    def snapshots(self) -> int: ...
    @property
    def single_step(self) -> bool: ...
    @property
    def output(self) -> Output: ...
    @property
    def widths(self) -> Mapping[str, int]: ...
    @property
    def batch(self) -> Batch: ...

    def run(self, size: StepSize) -> Mapping[str, NDArray[np.float32]] | None:
        """Compute the step in `batch`: its outputs by name, valid until the next run; None when it was stopped. An
        output is on the host when it is asked for, and may be changed there before its rows are picked from."""

    def pick(self, rows: NDArray[np.uint8], count: int, masks: NDArray[np.uint32] | None) -> list[int]:
        """A token for each of the first `count` PICK_ROWs, by the logits of the last run; -1 where there is none."""

    def read_page(self, group: int, page: int) -> bytes: ...
    def write_page(self, group: int, page: int, data: bytes | memoryview) -> None: ...
    def read_slot(self, slot: int) -> bytes: ...
    def write_slot(self, slot: int, data: bytes | memoryview) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
