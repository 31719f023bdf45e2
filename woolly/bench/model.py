"""The speed of one model: prompts, tokens, steps of several sequences, loading, and what Python adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from woolly import gguf
from woolly.bench.figures import Figure
from woolly.bench.state import State, barrier_ns
from woolly.bench.subject import PAGE, Subject
from woolly.device import Batch, StepSize, cpu
from woolly.engine import AnswerOptions, Engine, Sequence
from woolly.errors import UnsupportedError
from woolly.plan import Output
from woolly.text import TextStream, Tokenizer

SLICE_S = 0.03  # the shortest slice of a comparison
READS = 5


@dataclass(frozen=True, slots=True)
class SpeedTest:
    """A timed workload: a prompt of `count` tokens, or `count` steps of one token for each sequence, after `depth`."""

    kind: Literal["prompt", "tokens"]
    count: int
    depth: int = 0
    sequences: int = 1

    @property
    def name(self) -> str:
        several = f"x{self.sequences}" if self.sequences > 1 else ""
        deep = f"@d{self.depth}" if self.depth else ""
        return f"{'pp' if self.kind == 'prompt' else 'tg'}{self.count}{several}{deep}"

    @property
    def tokens(self) -> int:
        return self.count * self.sequences


@dataclass(frozen=True, slots=True)
class SpeedResult:
    """Tokens a second of one test, run by run, and the state of the machine before and after."""

    test: str
    tokens_per_s: Figure
    ms_per_step: float  # in the best run; a prompt counts as one step
    before: State
    after: State
    share_of_read: float | None = None  # a plain read of the same bytes over the time of a token


def speed_tests(prompt: int, tokens: int, depth: int, batches: tuple[int, ...]) -> list[SpeedTest]:
    """The tests that were asked for: a prompt, tokens, and tokens of several sequences."""
    tests = [SpeedTest("prompt", prompt, depth)] if prompt else []
    return tests + [SpeedTest("tokens", tokens, depth, sequences) for sequences in batches if tokens]


def positions_of(tests: list[SpeedTest]) -> int:
    return max(test.depth + test.count for test in tests)


def seconds_of(subject: Subject, test: SpeedTest, count: int | None = None) -> float:
    """Run a test once, or with another count; its cache must be filled to its depth."""
    count = test.count if count is None else count
    if test.kind == "prompt":
        return subject.prompt(count, test.depth)
    return subject.tokens(count, test.depth, test.sequences)


def speed(subject: Subject, test: SpeedTest, *, repetitions: int) -> SpeedResult:
    """A test so many times after one that is not counted, with the state of the machine before and after."""
    subject.fill(test.depth, test.sequences)
    seconds_of(subject, test, min(test.count, PAGE))
    before = state(subject)
    seconds = [seconds_of(subject, test) for _ in range(repetitions)]
    share = share_of_read(subject, test, repetitions) if test.kind == "tokens" and test.sequences == 1 else None
    rates = Figure(tuple(test.tokens / each for each in seconds))
    ms = min(seconds) * 1e3 / (test.count if test.kind == "tokens" else 1)
    return SpeedResult(test.name, rates, ms, before, state(subject), share)


def state(subject: Subject) -> State:
    """The state of the machine, its bandwidth measured on the packed weights that decoding reads."""
    seconds = min(subject.runner.read_weights() for _ in range(READS))
    return State(barrier_ns(subject.threads), subject.program.weight_bytes / seconds / 1e9)


def share_of_read(subject: Subject, test: SpeedTest, repetitions: int) -> float:
    """A plain read of the bytes that a token needs over the time of a token, in turn: the median of the pairs.

    1 is the limit of memory. Weights of which a token reads a row alone (an embedding of its own) do not count, nor do
    experts that it does not choose. There are as many reads as tokens, so that a disturbance is as likely to fall on
    either.
    """
    part = subject.program.token_bytes / subject.program.weight_bytes
    count = tokens_of_a_slice(subject, test)
    pairs = []
    for _ in range(max(3, 2 * repetitions)):
        read = sum(subject.runner.read_weights() for _ in range(count))
        pairs.append(read * part / seconds_of(subject, test, count))
    return median(pairs)


def tokens_of_a_slice(subject: Subject, test: SpeedTest) -> int:
    """How many steps make a slice that can be timed."""
    each = min(seconds_of(subject, test, 1) for _ in range(3))
    return min(test.count, max(1, round(SLICE_S / each)))


def slice_of(subject: Subject, test: SpeedTest) -> tuple[Callable[[], float], int]:
    """A function that runs a slice of a test, and how many tokens (of each sequence) that is."""
    subject.fill(test.depth, test.sequences)
    count = test.count if test.kind == "prompt" else tokens_of_a_slice(subject, test)
    return lambda: seconds_of(subject, test, count), count


class _IdleRunner:
    """A runner that computes nothing, so that the time of a turn with it is Python's own."""

    def __init__(self, vocab: int) -> None:
        self.rows, self.wants, self.sequences, self.context = 8, 1, 1, 4096
        self.page, self.pages, self.windows = PAGE, (-(-self.context // PAGE),), (0,)
        self.slots, self.snapshots, self.single_step, self.pool_bytes, self.page_bytes = 0, 0, False, 0, (0,)
        self.output = Output("logits", 0, "wants", vocab)
        self.batch = Batch.empty(rows=8, wants=1, sequences=1, groups=1, pages=self.pages[0])
        self._outputs = {"logits": np.zeros((1, vocab), np.float32)}
        self.isa, self.queue, self.widths = cpu.ISA, cpu.Runner.queue, {"logits": vocab}

    def run(self, size: StepSize) -> dict[str, NDArray[np.float32]]:
        return self._outputs

    def pick(self, rows: NDArray[np.uint8], count: int, masks: NDArray[np.uint32] | None) -> list[int]:
        return cpu.pick(self._outputs["logits"], rows, count, masks)

    def read_page(self, group: int, page: int) -> bytes:
        return b""

    def write_page(self, group: int, page: int, data: bytes | memoryview) -> None:
        pass

    def read_slot(self, slot: int) -> bytes:
        return b""

    def write_slot(self, slot: int, data: bytes | memoryview) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def turn_seconds(path: Path, vocab: int, *, turns: int = 500) -> float:
    """Seconds that the engine adds to each step of one sequence: scheduling, the batch, picking the token, its text.

    Without the text where the tokenizer is unknown.
    """
    with gguf.open(path) as file:
        try:
            words = TextStream(Tokenizer(file.meta))
        except UnsupportedError:
            words = None
    engine = Engine(_IdleRunner(vocab))
    stream = engine.add(Sequence([0], limit=turns + 2, answer=AnswerOptions(text=words)))
    times = []
    for _ in range(turns):
        begin = perf_counter()
        engine.turn()
        times.append(perf_counter() - begin)
    stream.cancel()
    engine.close()
    return median(times)
