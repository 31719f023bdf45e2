"""What a streamed token costs in each dialect outside the native step, beside OpenAI's chat route.

    python -m tests.measure.dialects smollm2

The routes take turns with the same question, so that what else the machine does meets all alike. Every figure is the
median of the rounds, with its quartiles.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from tests.measure.http import Child
from woolly.store import DEFAULT, resolve

FIRST = "/v1/chat/completions"


def bodies(question: str, tokens: int) -> dict[str, dict[str, Any]]:
    """The same request in each dialect."""
    messages = [{"role": "user", "content": question}]
    shared = {"stream": True, "temperature": 0}
    return {
        FIRST: {"messages": messages, "max_tokens": tokens, **shared},
        "/v1/messages": {"messages": messages, "max_tokens": tokens, **shared},
        "/api/chat": {"model": "default", "messages": messages, "options": {"num_predict": tokens, "temperature": 0}},
        "/v1/responses": {"input": question, "max_output_tokens": tokens, **shared},
        "/completion": {"prompt": question, "n_predict": tokens, **shared},
    }


def measure(path: Path, tokens: int, rounds: int, threads: int) -> dict[str, list[float]]:
    """Microseconds of CPU time outside the step for each token, by route."""
    server, reader = Child("tests.measure.server", str(path), str(threads)), Child("tests.measure.reader")
    rows: dict[str, list[float]] = {route: [] for route in bodies("", 1)}
    try:
        about = server.line()
        for number in range(rounds + 1):
            for route, body in bodies(f"{number}. Count to two hundred.", tokens).items():
                before = server.ask(what="cpu")
                reader.ask(port=about["port"], body=body, path=route)
                after = server.ask(what="cpu")
                outside = after["all_s"] - before["all_s"] - (after["native_s"] - before["native_s"])
                if number:  # the first round warms up
                    rows[route].append(outside * 1e6 / (after["tokens"] - before["tokens"]))
    finally:
        server.close()
        reader.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.measure.dialects", description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default=DEFAULT, help="a path or name (default smollm2)")
    parser.add_argument("-n", "--tokens", type=int, default=96, help="of an answer (default 96)")
    parser.add_argument("-r", "--rounds", type=int, default=9, help="default 9")
    parser.add_argument("-t", "--threads", type=int, default=0, help="default: the physical cores that we may use")
    args = parser.parse_args()
    rows = measure(resolve(args.model), args.tokens, max(args.rounds, 2), args.threads)
    for route, values in rows.items():
        low, middle, high = statistics.quantiles(values, n=4)
        ratio = statistics.median(one / first for one, first in zip(values, rows[FIRST], strict=True))
        print(f"{route:22} {middle:7.1f} us a token  ({low:.1f} to {high:.1f})  {ratio:.2f} x {FIRST}")


if __name__ == "__main__":
    main()
