"""Fuzzing: mutated files read by a child process that is started again when it dies or hangs.

    python -m tests.fuzz.run --count 100000 --seeds 10            through every check
    python -m tests.fuzz.run --count 5000 --what model            through a full load and one step

`make fuzz N=...` runs both. Every failure is printed with its seed and number, which give the file again
(`--keep FOLDER` writes it).
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutate import mutation

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 60.0  # without a line from the child


@dataclass
class Outcome:
    """What became of all files; failures are (seed, number, what happened)."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, int, str]] = field(default_factory=list)


def fuzz(what: str, seed: int, count: int, outcome: Outcome | None = None, *, timed: bool = False) -> Outcome:
    """Look at `count` files of a seed; timed: each that is wrong must be refused soon."""
    outcome = outcome or Outcome()
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        while first < count:
            first = _child(what, folder, seed, first, count, outcome, timed=timed)
    return outcome


def _child(what: str, folder: str, seed: int, first: int, count: int, outcome: Outcome, *, timed: bool) -> int:
    """Let one child work until it ends; the number of the next file."""
    words = [sys.executable, "-m", "tests.fuzz.child", what, folder, str(seed), str(first), str(count)]
    words += ["timed"] if timed else []
    child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True)
    assert child.stdout is not None
    at, pending, late = first - 1, b"", False
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(HANG_S):
                late = True
                os.killpg(child.pid, signal.SIGKILL)
                break
            data = os.read(child.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                word, _, became = line.decode(errors="replace").partition(" ")
                if became and word.isdigit():
                    outcome.counts[became if became in ("refused", "loaded") else "failed"] += 1
                    if became not in ("refused", "loaded"):
                        outcome.failures.append((seed, at, became))
                elif word.isdigit():
                    at = int(word)
    code = child.wait()
    child.stdout.close()
    if code == 0 and not late:
        return count
    outcome.counts["failed"] += 1
    outcome.failures.append((seed, at, "it hung" if late else f"the process died: {code}"))
    if at < first:
        raise SystemExit(f"the child does not start: {outcome.failures[-1]}")
    return at + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="files in all")
    parser.add_argument("--seeds", type=int, default=10, help="seeds, beginning with --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", choices=("reader", "model"), default="reader")
    parser.add_argument("--keep", type=Path, help="a folder for the files that failed")
    args = parser.parse_args()
    begin, outcome = time.monotonic(), Outcome()
    for i in range(args.seeds):
        share = args.count * (i + 1) // args.seeds - args.count * i // args.seeds
        fuzz(args.what, args.seed + i, share, outcome, timed=True)
    for seed, number, happened in outcome.failures:
        raw, note = mutation(seed, number)
        print(f"seed {seed} number {number}: {happened} ({note})")
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            (args.keep / f"fuzz-{seed}-{number}.gguf").write_bytes(raw)
    counts = ", ".join(f"{count:,} {word}" for word, count in sorted(outcome.counts.items()))
    last = args.seed + args.seeds - 1
    print(f"{args.what}: seeds {args.seed} to {last}: {counts}; {time.monotonic() - begin:.0f} s")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
