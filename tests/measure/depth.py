"""What a token costs more at the end of a long text than at its beginning, beside what it must cost.

    python -m tests.measure.depth smollm2 --kv q8

Steps at both depths and a plain read of as many bytes as the cache has there take turns. The least there is to do is
the larger of two: to read the keys and values once, and to multiply them at 65 % of the processor's rate for f32.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

from woolly.bench.machine import multiply_rates
from woolly.bench.state import load_average, processor
from woolly.bench.subject import Subject
from woolly.device import cpu
from woolly.device.cpu import TARGET
from woolly.store import DEFAULT, resolve

SHARE = 0.65  # of the f32 rate, which is as good as attention gets
STEPS = 8  # at each depth, in a round


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of a step at the beginning and at the depth, and of reading what the cache has there."""

    short: float
    deep: float
    read: float

    @property
    def more(self) -> float:
        return self.deep - self.short


def measure(path: Path, kv: str, *, depth: int, threads: int, rounds: int) -> tuple[list[Round], float]:
    """Rounds, and the multiply-adds of the deep step's attention."""
    subject = Subject(path, threads=threads, positions=depth + STEPS + 1, kv=kv)
    try:
        subject.fill(depth)
        nbytes = subject.program.page_bytes * depth // TARGET.page
        memory = cpu.Buffer(nbytes)
        memory.touch(threads)
        median = statistics.median
        return [
            Round(
                median(subject.tokens(1, i) for i in range(STEPS)),  # writes what stands there: the tokens are the same
                median(subject.tokens(1, depth + i) for i in range(STEPS)),
                median(nbytes / memory.read(threads) for _ in range(STEPS)),
            )
            for _ in range(rounds)
        ], _macs(subject, depth)
    finally:
        subject.close()


def _macs(subject: Subject, depth: int) -> float:
    code, names = subject.program.code, [op.name for op in subject.program.ops]
    return sum(2.0 * float(row["out"]["width"]) * depth for row in code if names[row["op"]] == "attend")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=DEFAULT)
    parser.add_argument("--kv", choices=("f32", "f16", "q8"), default="f16")
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    rounds, macs = measure(resolve(args.model), args.kv, depth=args.depth, threads=args.threads, rounds=args.rounds)
    rate = 1e9 * max(r.gmac_s.best for r in multiply_rates(args.threads, 5) if r.kind == "f32" and r.isa == cpu.ISA)
    more = statistics.median(r.more for r in rounds)
    best = min(r.deep for r in rounds) - min(r.short for r in rounds)
    read, multiply = statistics.median(r.read for r in rounds), macs / (SHARE * rate)
    least = max(read, multiply)
    print(f"{args.model}, cache {args.kv}, depth {args.depth}; {processor()}, load average {load_average():.1f}")
    print(f"a step at 0      {1e3 * statistics.median(r.short for r in rounds):8.2f} ms")
    print(f"more at the end  {1e3 * more:8.2f} ms (best {1e3 * best:.2f})")
    print(f"to read          {1e3 * read:8.2f} ms")
    print(f"to multiply      {1e3 * multiply:8.2f} ms")
    print(f"of the least     {more / least:8.2f} (best {best / least:.2f})")


if __name__ == "__main__":
    main()
