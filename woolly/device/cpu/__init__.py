"""cpu: the compiled core, for programs and batches.

In: a Program (plan) and an open file, then one Batch a step. Out: logits. Carries out what plan ordered: packs the
weights, fills the tables, runs the instructions with the process's workers.
`check_finite` looks at the weights only. `roofline` measures what the machine can do at the most.
Never decides anything about a model. The instruction set is chosen at import: the best of this machine, or the one that
WOOLLY_ISA names; WOOLLY_DISABLE_SIMD=1 chooses the scalar one.
"""

from __future__ import annotations

from woolly.device.cpu.batch import Batch, StepSize
from woolly.device.cpu.finite import check_finite
from woolly.device.cpu.machine import ISA, machine
from woolly.device.cpu.pick import PICK_ROW, pick
from woolly.device.cpu.roofline import Buffer, Peak, barrier_seconds, clock_hz, peaks
from woolly.device.cpu.runner import Runner

__all__ = [
    "ISA",
    "PICK_ROW",
    "Batch",
    "Buffer",
    "Peak",
    "Runner",
    "StepSize",
    "barrier_seconds",
    "check_finite",
    "clock_hz",
    "machine",
    "peaks",
    "pick",
]
