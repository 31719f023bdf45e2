"""Compares the speed of two checkouts of Woolly, in turns, so that what else the machine does meets both alike:

    .venv/bin/python tools/alternate.py ../before . smollm2
    .venv/bin/python tools/alternate.py ../before . smollm2 model.gguf --sequences 4 --rounds 5 --json figures.json
    .venv/bin/python tools/alternate.py ../before . --shape llama-3.2-1b:Q4_K_M --only bench
    .venv/bin/python tools/alternate.py . .              a checkout against itself: what its ratios spread is the noise

A checkout is a folder with a .venv that Woolly is built into. A round is the slices A B B A, each of them a process of
its own: `woolly bench MODEL --json`, the start of `import woolly` and `woolly --version` in CPU time, and the resident
memory of `woolly serve MODEL`, loaded and after one answer. A figure is the median of its slices; its ratio, after over
before, is the median of one ratio a round, with the quartiles. The noise is how far two slices of one checkout lie
apart in a round; a star marks what is worse by more than that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

Figures = dict[str, float]  # what one slice measured, by name
Slice = Callable[[Path], Figures]  # measures a checkout
STARTS = 5  # of a slice: one alone is too short to be told from chance
READY_S = 120


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of both checkouts, slice by slice; two slices of each are a round."""

    title: str
    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """After over before, one of each round."""
        rounds = zip(_pairs(self.before), _pairs(self.after), strict=True)
        return [sum(after) / sum(before) if sum(before) > 0 else 1.0 for before, after in rounds]

    @property
    def quartiles(self) -> tuple[float, float, float]:
        return _quartiles(self.ratios)

    @property
    def noise(self) -> float:
        """How far two slices of the same checkout lie apart: the larger over the smaller, the upper quartile."""
        pairs = [*_pairs(self.before), *_pairs(self.after)]
        return _quartiles([max(pair) / min(pair) if min(pair) > 0 else 1.0 for pair in pairs])[2]

    @property
    def worse(self) -> bool:
        low, _, high = self.quartiles
        return high < 1 / self.noise if self.name.endswith("tokens/s") else low > self.noise


def _pairs(values: tuple[float, ...]) -> list[tuple[float, ...]]:
    return [values[i : i + 2] for i in range(0, len(values), 2)]


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else values * 3
    return low, middle, high


def python(checkout: Path) -> str:
    return str(checkout / ".venv/bin/python")


def bench(checkout: Path, model: str, args: argparse.Namespace) -> Figures:
    """Speed, and what Python adds to each step: the engine's turn around a runner that computes nothing."""
    batches = ",".join(dict.fromkeys(("1", str(args.sequences))))
    words = [model, "-p", str(args.prompt), "-n", str(args.tokens), "-r", str(args.repetitions), "--batch", batches]
    words += ["--threads", str(args.threads)] if args.threads else []
    done = subprocess.run(
        [python(checkout), "-m", "woolly", "bench", *words, "--json", "-q"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    tests = {test["test"]: test["tokens_per_s"]["median"] for test in report["tests"]}
    return {f"{speed_name(name)}, tokens/s": rate for name, rate in tests.items()} | {
        "Python per step, us": report["turn_us"],
        "processors used by others, %": 100 * report["machine"]["foreign_share"],
    }


def speed_name(test: str) -> str:
    """pp512, tg64 or tg64x8 of the bench in words."""
    count, _, sequences = test[2:].partition("x")
    if test.startswith("pp"):
        return f"prompt of {count}"
    return f"decode, {sequences} sequences" if sequences else "decode"


def start(checkout: Path) -> Figures:
    """CPU time, user and system, of whole processes; a Python that does nothing is taken off."""
    commands = {"nothing": ["-c", "pass"], "import woolly": ["-c", "import woolly"]}
    commands |= {"woolly --version": ["-m", "woolly", "--version"]}
    ms: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(STARTS):
        for name, words in commands.items():
            before = children_s()
            subprocess.run([python(checkout), *words], cwd=checkout, stdout=subprocess.DEVNULL, check=True)
            ms[name].append(1e3 * (children_s() - before))
    nothing = min(ms.pop("nothing"))
    return {f"{name}, ms": min(runs) - nothing for name, runs in ms.items()}


def children_s() -> float:
    """CPU seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def serve(checkout: Path, model: str) -> Figures:
    """Resident memory of the server when the model is loaded, and after one answer."""
    from tests.server.process import Process, environ

    with tempfile.TemporaryDirectory(prefix="woolly-alternate-") as name:
        home = Path(name)
        with Process(environ(home, home), model, "--log-level", "error", checkout=checkout) as server:
            end = time.monotonic() + READY_S
            while server.ask("GET", "/health")[2]["model"] is None:
                if time.monotonic() > end:
                    raise SystemExit(f"{checkout}: the model is not loaded after {READY_S} s")
                time.sleep(0.05)
            loaded = resident_mb(server.pid)
            body = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
            status, _, answer = server.ask("POST", "/v1/completions", body)
            if status != 200:
                raise SystemExit(f"{checkout}: the server answers {status}: {answer}")
            figures = {"resident, loaded, MB": loaded, "resident, one answer, MB": resident_mb(server.pid)}
            server.end()
    return figures


def resident_mb(pid: int) -> float:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS:")) * 1024 / 1e6


def slices_of(models: list[str], args: argparse.Namespace) -> Iterator[tuple[str, Slice]]:
    if "start" in args.only:
        yield "start, CPU time beyond Python's own", start
    for model in models:
        name = Path(model).name
        if "bench" in args.only:
            yield name, partial(bench, model=model, args=args)
        if "serve" in args.only:
            yield f"woolly serve {name}", partial(serve, model=model)


def compare(title: str, run: Slice, before: Path, after: Path, rounds: int) -> list[Comparison]:
    """Rounds of A B B A; what drifts slowly falls on both alike."""
    runs: dict[str, list[Figures]] = {"before": [], "after": []}
    for number in range(rounds):
        print(f"{title}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for side, checkout in (("before", before), ("after", after), ("after", after), ("before", before)):
            runs[side].append(run(checkout))
    sides = [{name: tuple(one[name] for one in figures) for name in figures[0]} for figures in runs.values()]
    return [Comparison(title, name, sides[0][name], sides[1][name]) for name in sides[0]]


def table(rows: list[Comparison]) -> Iterator[str]:
    """A heading for each slice, a line for each figure."""
    title = ""
    yield f"{'':34}{'before':>10}{'after':>10}   after/before (quartiles)    noise"
    for row in rows:
        if row.title != title:
            title = row.title
            yield title
        low, middle, high = row.quartiles
        line = f"  {row.name:32}{statistics.median(row.before):10.1f}{statistics.median(row.after):10.1f}"
        ratio = f"{middle:8.3f} ({low:.3f} to {high:.3f}){100 * (row.noise - 1):8.1f} %{' *' if row.worse else ''}"
        yield line if row.name.endswith("%") else line + ratio


def as_json(rows: list[Comparison], args: argparse.Namespace) -> dict[str, Any]:
    """Every slice, so that any other statistic can be made of them."""
    figures = [
        {"of": row.title, "figure": row.name, "before": row.before, "after": row.after}
        | {"ratio": row.quartiles[1], "quartiles": row.quartiles[::2], "noise": row.noise, "worse": row.worse}
        for row in rows
    ]
    return {"before": str(args.before), "after": str(args.after), "rounds": args.rounds, "figures": figures}


@contextmanager
def model_files(names: list[str], shapes: list[str]) -> Iterator[list[str]]:
    """Paths, so that both checkouts read the same file: of named models, and of random ones of the shapes."""
    from woolly import bench as writer
    from woolly.store import resolve

    with tempfile.TemporaryDirectory(prefix="woolly-alternate-") as folder:
        paths = [resolve(name) for name in names]
        for text in shapes:
            title, shape, mix = writer.read_shape(text)
            paths.append(writer.write_model(Path(folder) / f"{text.replace(':', '-')}.gguf", title, shape, mix))
        yield [str(path.resolve()) for path in paths]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="paths or names (default smollm2)")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME:MIX", help="a random model of this shape")
    parser.add_argument("--only", nargs="+", choices=("start", "bench", "serve"), default=("start", "bench", "serve"))
    parser.add_argument("-p", "--prompt", type=int, default=512, help="tokens of the prompt (default 512)")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="tokens one by one (default 64)")
    parser.add_argument("-s", "--sequences", type=int, default=8, help="of a batched decode (default 8)")
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="of each test in a slice (default 3)")
    parser.add_argument("-t", "--threads", type=int, default=0, help="default: the physical cores that we may use")
    parser.add_argument("--rounds", type=int, default=5, help="of four slices (default 5)")
    parser.add_argument("--json", metavar="FILE", help="also write every figure there")
    args = parser.parse_args()
    for checkout in (args.before, args.after):
        if not os.access(python(checkout), os.X_OK):
            parser.error(f"{checkout} has no .venv/bin/python: run `make build` there")
    before, after = args.before.resolve(), args.after.resolve()
    with model_files(args.models or ([] if args.shape else ["smollm2"]), args.shape) as models:
        slices = list(slices_of(models, args))
        rows = [row for title, run in slices for row in compare(title, run, before, after, args.rounds)]
    print("\n".join(table(rows)))
    if args.json:
        Path(args.json).write_text(json.dumps(as_json(rows, args), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
