"""What decoding keeps of its speed while another process keeps one core busy.

    python -m tests.measure.neighbour smollm2

Rounds alone and rounds beside the neighbour take turns. The rate beside it over the rate alone, and the longest step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from woolly.bench.state import load_average, processor
from woolly.bench.subject import Subject
from woolly.store import DEFAULT, resolve

POSITIONS = 256


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of every step."""

    steps: tuple[float, ...]

    @property
    def rate(self) -> float:
        return len(self.steps) / sum(self.steps)


@contextmanager
def neighbour() -> Iterator[None]:
    """A process that never rests, on the last core that we may use."""
    core = max(os.sched_getaffinity(0))
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"],
        stdin=subprocess.DEVNULL,
    )
    try:
        time.sleep(0.3)  # until it has started
        yield
    finally:
        process.kill()
        process.wait()


def decode(subject: Subject, seconds: float) -> Round:
    steps: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        steps.append(subject.tokens(1, len(steps) % POSITIONS))
    return Round(tuple(steps))


def measure(path: Path, *, threads: int, rounds: int, seconds: float) -> list[tuple[Round, Round]]:
    """Rounds alone and rounds with the neighbour, in turn, as many as asked for."""
    subject = Subject(path, threads=threads, positions=POSITIONS)
    try:
        decode(subject, seconds / 4)
        pairs = []
        for _ in range(rounds):
            alone = decode(subject, seconds)
            with neighbour():
                pairs.append((alone, decode(subject, seconds)))
        return pairs
    finally:
        subject.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=DEFAULT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    args = parser.parse_args()
    pairs = measure(resolve(args.model), threads=args.threads, rounds=args.rounds, seconds=args.seconds)
    ratios = [disturbed.rate / alone.rate for alone, disturbed in pairs]
    print(f"{args.model}, {args.rounds} rounds; {processor()}, load average {load_average():.1f}")
    print(f"alone            {statistics.median(alone.rate for alone, _ in pairs):8.1f} tokens/s")
    print(f"with a neighbour {statistics.median(disturbed.rate for _, disturbed in pairs):8.1f} tokens/s")
    low, high = 100 * min(ratios), 100 * max(ratios)
    print(f"kept             {100 * statistics.median(ratios):8.1f} % ({low:.1f} to {high:.1f})")
    longest = [1e3 * max(disturbed.steps) for _, disturbed in pairs]
    print(f"longest step     {max(longest):8.1f} ms (of the rounds {', '.join(f'{ms:.1f}' for ms in longest)})")


if __name__ == "__main__":
    main()
