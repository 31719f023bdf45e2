"""cpu: the compiled core, for programs and batches.

In: a Program (plan) and an open file, then one Batch a step. Out: logits. Carries out what plan ordered: packs the
weights, fills the tables, runs the instructions with the process's workers. Other devices have from here what the host
does for them: `pack` makes the panels of a weight, `pick` chooses tokens by logits that are on the host.
`check_finite` looks at the weights only. `roofline` measures what the machine can do at the most.
Never decides anything about a model. The instruction set is chosen at import: the best of this machine, or the one that
WOOLLY_ISA names; WOOLLY_DISABLE_SIMD=1 chooses the scalar one.
"""

from __future__ import annotations

from woolly import system
from woolly.device.cpu.finite import check_finite
from woolly.device.cpu.machine import ISA, SETS, machine
from woolly.device.cpu.packing import pack
from woolly.device.cpu.pick import pick
from woolly.device.cpu.roofline import Buffer, Peak, barrier_seconds, clock_hz, peaks
from woolly.device.cpu.runner import Runner
from woolly.device.cpu.target import TARGET
from woolly.device.device import Device

CPU = Device("cpu", TARGET, SETS, system.memory, Runner.queue, Runner)

__all__ = [
    "CPU",
    "ISA",
    "SETS",
    "TARGET",
    "Buffer",
    "Peak",
    "Runner",
    "barrier_seconds",
    "check_finite",
    "clock_hz",
    "machine",
    "pack",
    "peaks",
    "pick",
]
