"""The cost of a turn in Python: a small and constant time, and no arrays."""

from __future__ import annotations

import sys
import tracemalloc
from time import thread_time

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.asking import BYTES, END_TOKEN
from woolly.device import DEVICES, Batch, StepSize, cpu
from woolly.engine import AnswerOptions, Engine, Sequence
from woolly.plan import Output
from woolly.request import Sampling
from woolly.text import TextStream

NUMPY_DOMAIN = 389047  # the domain of NumPy's arrays in tracemalloc
VOCAB = 257


class Instant:
    """A runner that takes no time: the same logits in every step."""

    rows, wants, sequences, context, vocab, page, pages = 512, 32, 32, 8192, VOCAB, 64, (4096,)
    windows, slots, snapshots, single_step, pool_bytes = (0,), 0, 0, False, 0
    output, queue = Output("logits", 0, "wants", VOCAB), DEVICES["cpu"].queue

    def __init__(self) -> None:
        self.logits = np.zeros((self.wants, VOCAB), np.float32)
        self.logits[:, END_TOKEN] = -50.0
        self.outputs = {"logits": self.logits}
        self.batch = Batch.empty(rows=512, wants=32, sequences=32, groups=1, pages=128)

    def run(self, size: StepSize) -> dict[str, NDArray[np.float32]] | None:
        return self.outputs

    def pick(self, rows: NDArray[np.uint8], count: int, masks: NDArray[np.uint32] | None) -> list[int]:
        return cpu.pick(self.logits, rows, count, masks)

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def decoding(sampling: Sampling, count: int = 1) -> Engine:
    """An engine in the middle of answers, with texts and a stop text, as in practice."""
    engine = Engine(Instant())
    for seed in range(count):
        text = TextStream(BYTES, ("\n\nUser:",))
        prompt = [65 + seed] * 200
        engine.add(Sequence(prompt, limit=4000, answer=AnswerOptions(sampling, seed, text=text)))
    while len(engine.running) < count or not all(sequence.answers for sequence in engine.running):
        engine.turn()
    return engine


def cost_us(engine: Engine, turns: int = 300) -> float:
    """Least time over blocks of ten turns, in processor time of the thread, so that other processes do not count."""
    blocks = []
    for _ in range(turns // 10):
        begin = thread_time()
        for _ in range(10):
            engine.turn()
        blocks.append((thread_time() - begin) / 10)
    return min(blocks) * 1e6


def calls(engine: Engine, turns: int = 30) -> float:
    """Functions of Python and C that a turn calls."""
    count = 0

    def called(_frame: object, event: str, _what: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        for _ in range(turns):
            engine.turn()
    finally:
        sys.setprofile(None)
    return count / turns


@pytest.mark.native
def test_a_turn_calls_few_functions() -> None:
    one, many = calls(decoding(Sampling())), calls(decoding(Sampling(), 32))
    print(f"calls of a turn: {one:.0f} with one sequence, {many:.0f} with 32")
    assert one < 250
    assert many < 3500


@pytest.mark.soak
def test_a_turn_of_one_sequence_costs_less_than_150_microseconds() -> None:
    assert cost_us(decoding(Sampling())) < 150


@pytest.mark.soak
def test_a_turn_of_32_sequences_costs_less_than_800_microseconds() -> None:
    assert cost_us(decoding(Sampling(), 32)) < 800


@pytest.mark.native
@pytest.mark.parametrize("count", [1, 4, 32])
def test_turns_make_no_arrays(count: int) -> None:
    engine = decoding(Sampling(), count)
    tracemalloc.start()
    try:
        for _ in range(10):
            engine.turn()
        before = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY_DOMAIN)])
        tracemalloc.reset_peak()
        current = tracemalloc.get_traced_memory()[0]
        for _ in range(30):  # without a page border, since the name of a new page would be kept
            engine.turn()
        peak = tracemalloc.get_traced_memory()[1]
        after = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, NUMPY_DOMAIN)])
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in after.traces) == sum(trace.size for trace in before.traces)
    assert peak - current < count * 32_000  # the events of thirty turns, and nothing of the size of a row of logits
