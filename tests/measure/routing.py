"""What routing is worth on real replicas: conversations of many users, by the gateway's own choice and by others.

    python -m tests.measure.routing

A gateway with 4 replicas of a small model, one thread each; 50 users with one of 5 system prompts have 10 turns each, 8
of them at a time. Of each policy: the share of the prompts' tokens that a replica remembered, and the time to the first
token. Replicas are new for each policy, so nobody finds what another left.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.server.fleets import CHAT, fleet, talker
from woolly.fleet.routing import Prompt, ReplicaLoad, candidates, cost_s

REPLICAS, USERS, TURNS, AT_ONCE = 4, 50, 10, 8
SYSTEMS = [" ".join(f"w{300 + (13 * s + 7 * i) % 1700}" for i in range(80)) for s in range(5)]


def by_connections(one: ReplicaLoad, _prompt: Prompt) -> float:
    return one.running + random.random()


def by_chance(_one: ReplicaLoad, _prompt: Prompt) -> float:
    return random.random()


POLICIES: dict[str, Callable[[ReplicaLoad, Prompt], float]] = {
    "random": by_chance,
    "least connections": by_connections,
    "estimate": cost_s,
}


def turn(port: int, messages: list[dict[str, str]], seed: int) -> tuple[str, float, int, int]:
    """One answer: its text, the seconds to its first token, tokens of the prompt, and those that were remembered."""
    body: dict[str, Any] = {"messages": messages, "max_tokens": 16, "stream": True, "seed": seed}
    body |= {"stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    begun, first, text, usage = time.monotonic(), 0.0, "", {}
    connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            frame = json.loads(line[6:])
            for choice in frame["choices"]:
                if choice["delta"].get("content"):
                    first = first or time.monotonic() - begun
                    text += choice["delta"]["content"]
            usage = frame.get("usage") or usage
    connection.close()
    return text, first, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def user(port: int, number: int) -> list[tuple[float, int, int]]:
    """All turns of one user."""
    chance = random.Random(number)
    messages = [{"role": "system", "content": SYSTEMS[number % len(SYSTEMS)]}]
    rows = []
    for index in range(TURNS):
        asked = " ".join(f"w{chance.randrange(300, 2000)}" for _ in range(chance.randint(3, 12)))
        messages.append({"role": "user", "content": asked})
        text, first, prompt, cached = turn(port, messages, 100 * number + index)
        messages.append({"role": "assistant", "content": text})
        rows.append((first, prompt, cached))
    return rows


def measure(home: Path) -> None:
    model = talker(home, layers=4)
    for name, cost in POLICIES.items():
        everybody = cost is not cost_s  # they look at all replicas
        chosen = (lambda ids, _prompt, _chance: list(ids)) if everybody else candidates
        with (
            patch("woolly.fleet.choosing.cost_s", cost),
            patch("woolly.fleet.choosing.candidates", chosen),
            fleet(home, model, REPLICAS) as served,
            ThreadPoolExecutor(AT_ONCE) as threads,
        ):
            rows = [row for each in threads.map(lambda number: user(served.port, number), range(USERS)) for row in each]
        prompts, cached = sum(prompt for _, prompt, _ in rows), sum(hit for _, _, hit in rows)
        cuts = statistics.quantiles([first * 1e3 for first, _, _ in rows], n=100)
        hits, tokens = 100 * cached / prompts, prompts / len(rows)
        line = f"{name:18} {len(rows)} turns, {tokens:.0f} tokens each; remembered {hits:.0f} %"
        print(f"{line}; first token p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="woolly-measure-") as folder:
        measure(Path(folder))
