"""What answers over HTTP cost: how fast, how soon, beside what the library itself gives.

    python -m tests.measure.http smollm2
    python -m tests.measure.http --shape llama-3.2-1b:Q4_K_M

A server process, a client process that only reads bytes, and the library in the server's process take turns, so that
what else the machine does meets all alike. Every figure is the median of the rounds, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from woolly import bench
from woolly.bench.state import load_average, processor
from woolly.store import DEFAULT, resolve

PROMPT = 16  # tokens


class Child:
    """A process that answers a line of JSON with a line of JSON."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> Any:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            raise SystemExit(f"{self.process.args[2]} ended with {self.process.wait()}")  # type: ignore[index]
        return json.loads(text)

    def ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return self.line()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def measure(path: Path, tokens: int, rounds: int, threads: int) -> dict[str, list[float]]:
    """All rounds of every figure; `share` is of the library's rate, `outside` of the process's CPU time."""
    server, reader = Child("tests.measure.server", str(path), str(threads)), Child("tests.measure.reader")
    rows: dict[str, list[float]] = {name: [] for name in ("first_ms", "rate", "library", "share", "outside")}
    dice = random.Random(1)
    try:
        about = server.line()
        for number in range(rounds + 1):
            prompt = [dice.randrange(about["vocab"]) for _ in range(PROMPT)]  # new: nothing of it is remembered
            body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
            body |= {"stream_options": {"include_usage": True}, "logit_bias": {str(end): -100 for end in about["ends"]}}
            before = server.ask(what="cpu")
            came = reader.ask(port=about["port"], body=body)
            after = server.ask(what="cpu")
            count = _completion(came["tail"])
            prompt = [dice.randrange(about["vocab"]) for _ in range(PROMPT)]
            alone = server.ask(what="library", prompt=prompt, tokens=tokens)
            if number == 0:
                continue  # warms up
            rate, library = (count - 1) / (came["last_s"] - came["first_s"]), (tokens - 1) / alone["seconds"]
            cpu = after["all_s"] - before["all_s"]
            rows["first_ms"].append(came["first_s"] * 1e3)
            rows["rate"].append(rate)
            rows["library"].append(library)
            rows["share"].append(rate / library)
            rows["outside"].append(1 - (after["native_s"] - before["native_s"]) / cpu)
    finally:
        server.close()
        reader.close()
    return rows


def _completion(tail: str) -> int:
    """How many tokens the last chunk but one says there were."""
    rows = [row for row in tail.split("data: ") if '"usage":{' in row]
    number: int = json.loads(rows[-1].split("\r\n")[0])["usage"]["completion_tokens"]
    return number


def lines(name: str, rows: dict[str, list[float]]) -> Iterator[str]:
    def shown(key: str, scale: float = 1.0) -> str:
        low, middle, high = statistics.quantiles([value * scale for value in rows[key]], n=4)
        return f"{middle:8.1f}  ({low:.1f} to {high:.1f})"

    yield f"{name} over HTTP, {len(rows['rate'])} rounds; {processor()}, load average {load_average():.1f}"
    yield f"first token, {PROMPT}-token prompt  {shown('first_ms')} ms"
    yield f"sustained                    {shown('rate')} tokens/s"
    yield f"the library itself           {shown('library')} tokens/s"
    yield f"share of the library's rate  {shown('share', 100)} %"
    yield f"CPU time outside the step    {shown('outside', 100)} %"


@contextmanager
def model_file(args: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    if args.shape is None:
        path = resolve(args.model)
        yield path, path.name
        return
    title, shape, mix = bench.read_shape(args.shape)
    with tempfile.TemporaryDirectory(prefix="woolly-measure-") as folder:
        yield bench.write_model(Path(folder) / "model.gguf", title, shape, mix), title


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.http", description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=DEFAULT, help="a path or name (default smollm2)")
    parser.add_argument("--shape", metavar="NAME:MIX", help="a random model of this shape instead")
    parser.add_argument("-n", "--tokens", type=int, default=96, help="of an answer (default 96)")
    parser.add_argument("-r", "--rounds", type=int, default=9, help="default 9")
    parser.add_argument("-t", "--threads", type=int, default=0, help="default: the physical cores that we may use")
    parser.add_argument("--json", action="store_true", help="every round, as one JSON object")
    args = parser.parse_args()
    with model_file(args) as (path, name):
        rows = measure(path, args.tokens, max(args.rounds, 2), args.threads)
    print(json.dumps({"model": name, "rows": rows}) if args.json else "\n".join(lines(name, rows)))


if __name__ == "__main__":
    main()
