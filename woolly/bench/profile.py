"""Where the time of a step goes, instruction by instruction, and how much of it no limit of the machine explains.

An instruction that reads weights cannot be quicker than a plain read of them, nor than its multiplications at the peak
of the instruction set. The larger of the two is its floor. Time above the floor, and all time of instructions without
a floor, is neither memory nor arithmetic: waiting, small work, imperfect loops.
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass

import numpy as np

from woolly.bench.subject import PAGE, Subject
from woolly.device import Batch, cpu
from woolly.plan import Program
from woolly.plan.program import COUNTS, WEIGHT
from woolly.plan.program import PAGE as PAGE_KIND

RUNS = 15


@dataclass(frozen=True, slots=True)
class PeakRates:
    """What the machine can do in a second: bytes read, multiply-adds of integers and of floats; 0: not known."""

    read: float
    integer: float
    floating: float


@dataclass(frozen=True, slots=True)
class InstructionTime:
    """One instruction, or several of a kind: its time, and its bytes read and multiplications."""

    what: str
    count: int
    work_us: float
    wait_us: float  # the first thread, idle at the barrier after its share of the work
    memory_us: float  # a plain read of the same bytes
    arithmetic_us: float
    bytes: int
    macs: int

    @property
    def us(self) -> float:
        return self.work_us + self.wait_us

    @property
    def floor_us(self) -> float:
        return max(self.memory_us, self.arithmetic_us)


@dataclass(frozen=True, slots=True)
class Profile:
    """A step: each instruction in order, and the same by kind, the longest first."""

    rows: int
    kinds: tuple[InstructionTime, ...]
    instructions: tuple[InstructionTime, ...]

    @property
    def ms(self) -> float:
        return sum(row.us for row in self.instructions) / 1e3

    @property
    def neither_ms(self) -> float:
        """Milliseconds above the floors of all instructions: neither memory nor arithmetic."""
        return sum(max(0.0, row.us - row.floor_us) for row in self.instructions) / 1e3


def rates(subject: Subject) -> PeakRates:
    """The limits for this subject: a plain read of its own weights, and the peak of its instruction set."""
    read = subject.program.weight_bytes / min(subject.runner.read_weights() for _ in range(10))
    peaks = [peak for _ in range(20) for peak in cpu.peaks(subject.threads) if peak.isa == subject.isa]
    best = {kind: max((peak.rate for peak in peaks if peak.integer is kind), default=0.0) for kind in (True, False)}
    return PeakRates(read, best[True], best[False])


def profile(subject: Subject, batch: Batch, limits: PeakRates, *, runs: int = RUNS) -> Profile:
    """Run a step by the clock so many times; of each instruction the median counts."""
    runner = subject.runner
    size = runner.batch.put(batch)
    runner.times(size)
    times = np.stack([runner.times(size) for _ in range(runs)])  # [runs, instructions, 2]
    middle = np.median(times, axis=0) / 1e3
    costs = _costs(subject.program, batch)
    rows = tuple(_row(cost, float(work), float(wait), limits) for cost, (work, wait) in zip(costs, middle, strict=True))
    return Profile(len(batch.tokens), _summed_by_kind(rows), rows)


@dataclass(frozen=True, slots=True)
class _InstructionCost:
    what: str
    nbytes: int
    integer_macs: int
    float_macs: int


def _row(cost: _InstructionCost, work_us: float, wait_us: float, limits: PeakRates) -> InstructionTime:
    integer = cost.integer_macs / limits.integer if limits.integer else 0.0
    floating = cost.float_macs / limits.floating if limits.floating else 0.0
    memory_us, arithmetic_us = 1e6 * cost.nbytes / limits.read, 1e6 * (integer + floating)
    macs = cost.integer_macs + cost.float_macs
    return InstructionTime(cost.what, 1, work_us, wait_us, memory_us, arithmetic_us, cost.nbytes, macs)


def _costs(program: Program, batch: Batch) -> list[_InstructionCost]:
    names = [op.name for op in program.ops]
    packs = {order.place: order for order in program.packs}
    last = [int(first + i) for _, count, first, *_ in batch.spans for i in range(count)]  # positions of the rows
    costs = []
    counts = {"rows": len(batch.tokens), "wants": len(batch.want), "spans": len(batch.spans)}
    for row in program.walked(len(batch.tokens), len(batch.want)):
        op, rows = names[int(row["op"])], counts[COUNTS[int(row["rows"])]]
        integer = floating = nbytes = 0
        what = op
        for operand in row["inputs"]:
            layout = program.layouts[int(operand["layout"])]
            if operand["kind"] == WEIGHT and layout != "plain" and op != "embed":
                order = packs[int(operand["place"])]
                what = f"{op} {short(order.weight)} {layout}"
                count = (
                    int(row["inputs"][2]["width"]) if order.experts > 1 else 1
                )  # experts of a row: at best no two rows share one
                nbytes += int(operand["nbytes"]) * min(rows * count, order.experts) // order.experts
                macs = rows * count * int(operand["height"]) * int(operand["width"])
                if layout in ("f32", "f16", "bf16"):
                    floating += macs
                else:
                    wide = program.layouts[int(row["inputs"][0]["layout"])] == "wide"
                    integer += 2 * macs if wide else macs
            elif operand["kind"] == PAGE_KIND and op in ("attend", "store_attend"):
                each = int(operand["nbytes"]) // PAGE
                nbytes += sum(each * int(first + count) for _, count, first, *_ in batch.spans)
                floating += sum(2 * int(row["out"]["width"]) * (position + 1) for position in last)
        costs.append(_InstructionCost(what, nbytes if rows else 0, integer, floating))
    return costs


def short(weight: str) -> str:
    """The name of a weight without its layer and endings: attn_q+attn_k+attn_v."""
    return "+".join(re.sub(r"^blk\.\d+\.|\.weight$", "", part) for part in weight.split("+"))


def _summed_by_kind(rows: tuple[InstructionTime, ...]) -> tuple[InstructionTime, ...]:
    kinds: dict[str, list[InstructionTime]] = {}
    for row in rows:
        kinds.setdefault(row.what, []).append(row)
    return tuple(sorted((_sum(what, same) for what, same in kinds.items()), key=lambda row: -row.us))


def _sum(what: str, rows: list[InstructionTime]) -> InstructionTime:
    """One row named `what`, each number of which is the sum over the given rows."""
    return InstructionTime(what, *(sum(column) for column in zip(*(astuple(row)[1:] for row in rows), strict=True)))
