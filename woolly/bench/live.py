"""A loaded model, measured while it serves: tokens by its engine, its largest product, the planning of a step.

Work goes through the engine in small pieces, so that answers which run meanwhile wait no longer than for each other.
Each test is timed as it is and, where there are kernels to compare, by the scalar ones for at most BASELINE_S.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Timer
from time import perf_counter
from typing import TypeAlias

import numpy as np

from woolly import gguf, model, plan
from woolly.device import Batch, cpu
from woolly.engine import Engine, Sequence
from woolly.errors import BusyError, UnsupportedError
from woolly.llm.llm import LLM
from woolly.request import End, Failed

BASELINE = "scalar"
BASELINE_S = 2.0
PIECE_S = 0.05  # how long products run before other answers get their turn

Check: TypeAlias = Callable[[], None]
"""Called between two pieces; raises when the work is to end."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of `count` rounds, and of one by the scalar kernels: None where that was not timed or took too long."""

    count: int
    seconds: float
    baseline_s: float | None = None

    @property
    def speedup(self) -> float | None:
        return None if self.baseline_s is None else self.baseline_s / (self.seconds / self.count)


def generate(llm: LLM, count: int, check: Check) -> Timing:
    """So many greedy tokens by the engine; where the context ends, another answer begins."""
    engine, seconds, left = llm.engine, 0.0, count
    while left:
        check()
        part = min(left, llm.info.context - 1)
        sequence = Sequence([0], limit=1 + part)
        begun = perf_counter()
        for event in engine.add(sequence):
            check()
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, End) and event.reason == "cancelled":
                raise BusyError("the model was closed while it was measured", suggestion="load it again")
        seconds += perf_counter() - begun
        left -= part
    return Timing(count, seconds, _scalar_token(engine, count, check) if llm.info.isa != BASELINE else None)


def multiply(llm: LLM, count: int, check: Check) -> Timing:
    """The largest matrix times one vector, so many times."""
    runner, between = _runner(llm.engine), llm.engine.between
    seconds, left, piece = 0.0, count, 1
    while left:
        check()
        piece = min(piece, left)
        took = between(partial(runner.product, piece)).result()
        if took is None:
            continue  # another thread meant to stop a step, and stopped this product
        seconds += took
        left -= piece
        piece = max(1, int(piece * PIECE_S / max(took, 1e-6)))
    if llm.info.isa == BASELINE:
        return Timing(count, seconds)

    def scalar() -> float | None:
        with runner.by(BASELINE):
            return runner.product(1)

    return Timing(count, seconds, _mean(scalar, llm.engine, count, check))


def allocate(llm: LLM, count: int, check: Check) -> Timing:
    """Plan a step of this model and take its work area, touched to the last page, so many times."""
    info, seconds = llm.info, 0.0
    with gguf.open(llm.card.path) as file:
        graph = model.build(file, info.context)
    for _ in range(count):
        check()
        begun = perf_counter()
        largest = plan.bounds(graph, info.context, rows=info.batch, sequences=info.sequences)
        program = plan.plan(graph, cpu.TARGET, largest, kv=info.kv, exact=info.exact)
        cpu.Buffer(program.work_bytes).touch(info.threads)
        seconds += perf_counter() - begun
    return Timing(count, seconds)


def measure(replica: object, test: str, count: int, check: Check) -> Timing:
    """Time a model at one of TESTS. It must be loaded in this process."""
    if not isinstance(replica, LLM):
        raise UnsupportedError("this model is not loaded in this process, and cannot be measured from here")
    return TESTS[test](replica, count, check)


TESTS = {"token_generation": generate, "matrix_multiplication": multiply, "memory_allocation": allocate}


def _scalar_token(engine: Engine, count: int, check: Check) -> float | None:
    """Seconds of a token by the scalar kernels: the same steps, from the same beginning, in a page of their own."""
    runner, size = _runner(engine), engine.pages.size
    room = Sequence([0], limit=size)
    if not engine.between(lambda: engine.pages.admit(room, spare=0) and engine.pages.grow(room, size)).result():
        return None  # other answers hold all pages
    position = 0

    def step() -> float | None:
        nonlocal position
        assert room.table is not None
        spans, none = np.array([[0, 1, position, room.slot, 0]], np.int32), np.zeros(1, np.int32)
        size = runner.batch.put(Batch(none, spans, room.table[:, None, :1], none))
        with runner.by(BASELINE):
            begun = perf_counter()
            done = runner.run(size) is not None
        position += 1
        return perf_counter() - begun if done else None

    try:
        return _mean(step, engine, min(count, size), check)
    finally:
        engine.between(lambda: engine.pages.release(room)).result()


def _mean(once: Callable[[], float | None], engine: Engine, count: int, check: Check) -> float | None:
    """The mean seconds of at most `count` rounds in the engine thread; None if not one comes to its end in time."""
    end, seconds, done = perf_counter() + BASELINE_S, 0.0, 0
    while done < count and (left := end - perf_counter()) > 0:
        check()
        timer = Timer(left, engine.stop_step)
        timer.daemon = True
        timer.start()
        try:
            took = engine.between(once).result()
        finally:
            timer.cancel()
        if took is not None:
            seconds += took
            done += 1
    return seconds / done if done else None


def _runner(engine: Engine) -> cpu.Runner:
    assert isinstance(engine.runner, cpu.Runner)
    return engine.runner
