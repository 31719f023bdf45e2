"""A fleet without machines: conversations over many replicas, by the gateway's own routing and by others beside it.

    python -m tests.server.fleet_simulation          a table: share of prompt tokens found in a cache, time to the first
                                                     token (p50, p99), answers at the fullest replica

Conversations share system prompts (a few of them most), go on for some turns, and ask again after a while. A replica
computes prompts one after another, slower the more answers run, and forgets the pages it used longest ago. What the
gateway knows is a report of up to a second ago and what it has sent since, as it really is. One seed decides
everything.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from woolly.fleet.routing import Prompt, ReplicaLoad, candidates, cost_s, ranked

PAGE = 64
SLOTS = 32
PROMPT_RATE, ANSWER_RATE = 2000.0, 30.0  # tokens a second of one answer alone at a replica
MOST_RATE = 240.0  # tokens a second of all answers of a replica together
CACHE = 60_000 // PAGE  # pages
REPORT_S = 1.0


@dataclass(eq=False)
class Replica:
    """A replica: its true state, and `seen`, its last report to the gateway."""

    id: str
    free_s: float = 0.0  # when its last prompt will have been computed
    answers: list[float] = field(default_factory=list)  # when each ends
    cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    seen: ReplicaLoad = field(default_factory=ReplicaLoad)
    most: int = 0

    def running(self, now: float) -> int:
        while self.answers and self.answers[0] <= now:
            heapq.heappop(self.answers)
        return len(self.answers)

    def take(self, now: float, prompt: Prompt, tokens: int) -> tuple[float, int]:
        """Answer a prompt with so many tokens; returns the seconds to its first token, and how many were cached."""
        known = 0
        while known < len(prompt.names) and prompt.names[known] in self.cache:
            known += 1
        running = self.running(now)
        begun = max(now, self.free_s)
        if running >= SLOTS:
            begun = max(begun, self.answers[running - SLOTS])
        self.free_s = begun + max(prompt.tokens - known * PAGE, 1) / PROMPT_RATE * (1.0 + running / SLOTS)
        heapq.heappush(self.answers, self.free_s + tokens / min(ANSWER_RATE, MOST_RATE / (running + 1)))
        self.most = max(self.most, running + 1)
        for name in prompt.names:
            self.cache[name] = None
            self.cache.move_to_end(name)
        while len(self.cache) > CACHE:
            self.cache.popitem(last=False)
        return self.free_s - now, min(known * PAGE, prompt.tokens)

    def report(self, now: float) -> None:
        """Report the state of the replica to the gateway."""
        queued = int(max(self.free_s - now, 0.0) * PROMPT_RATE)
        self.seen = ReplicaLoad(SLOTS, PROMPT_RATE, MOST_RATE, self.running(now), queued, set(self.cache))


Policy = Callable[[dict[str, Replica], Prompt, random.Random], str]


def by_estimate(replicas: dict[str, Replica], prompt: Prompt, chance: random.Random) -> str:
    ids = candidates(replicas, prompt, chance.choice)
    best = min(ids, key=lambda id_: cost_s(replicas[id_].seen, prompt))
    seen = replicas[best].seen
    seen.queued += max(prompt.tokens - seen.known(prompt.names) * PAGE, 1)
    seen.running += 1
    seen.sent.update(prompt.names)
    return best


def by_chance(replicas: dict[str, Replica], prompt: Prompt, chance: random.Random) -> str:
    return chance.choice(list(replicas))


def least_connections(replicas: dict[str, Replica], prompt: Prompt, chance: random.Random) -> str:
    best = min(replicas.values(), key=lambda one: (one.seen.running, chance.random()))
    best.seen.running += 1
    return best.id


def sticky(replicas: dict[str, Replica], prompt: Prompt, chance: random.Random) -> str:
    return ranked(replicas, prompt.conversation, 1)[0]


POLICIES: dict[str, Policy] = {
    "random": by_chance,
    "least connections": least_connections,
    "sticky hash": sticky,
    "estimate": by_estimate,
}


@dataclass(frozen=True)
class Outcome:
    hits: float  # share of the prompts' tokens found in a cache
    p50_ms: float
    p99_ms: float
    fullest: int


def simulate(
    policy: Policy, *, rate: float, seconds: float, seed: int = 1, count: int = 100, conversations: int = 3000
) -> Outcome:
    """`rate` requests a second for `seconds`; figures are taken after the first third, when caches are warm."""
    chance = random.Random(seed)
    replicas = {one.id: one for one in (Replica(f"{number:016x}") for number in range(count))}
    systems = [chance.randint(300, 1500) for _ in range(40)]
    shares = [1 / (rank + 1) for rank in range(len(systems))]
    chosen = chance.choices(range(len(systems)), shares, k=conversations)
    lengths = [0] * conversations  # tokens after the system prompt
    names: dict[tuple[str, int], list[bytes]] = {}
    now, reported, waits, cached, asked = 0.0, 0.0, [], 0, 0
    while now < seconds:
        now += chance.expovariate(rate)
        if now - reported > REPORT_S:
            reported = now
            for replica in replicas.values():
                replica.report(now)
        which = chance.randrange(conversations)
        lengths[which] += chance.randint(20, 200)
        prompt = _prompt(which, chosen[which], systems[chosen[which]], lengths[which], names)
        answer = int(min(chance.lognormvariate(4.8, 0.8), 1000.0)) + 1
        wait, hits = replicas[policy(replicas, prompt, chance)].take(now, prompt, answer)
        lengths[which] += answer
        if lengths[which] > 6000:
            lengths[which] = 0
        if now > seconds / 3:
            waits.append(wait)
            cached, asked = cached + hits, asked + prompt.tokens
    waits.sort()
    return Outcome(
        cached / asked,
        waits[len(waits) // 2] * 1e3,
        waits[len(waits) * 99 // 100] * 1e3,
        max(one.most for one in replicas.values()),
    )


def _prompt(which: int, system: int, head: int, length: int, names: dict[tuple[str, int], list[bytes]]) -> Prompt:
    """A turn of a conversation. Pages of the system prompt are shared; all others belong to the conversation."""
    own = names.setdefault(("c", which), [])
    shared = names.setdefault(("s", system), [_name(f"s{system}.{index}") for index in range(head // PAGE)])
    pages = (head + length) // PAGE - len(shared)
    while len(own) < pages:
        own.append(_name(f"c{which}.{len(own)}"))
    return Prompt(_name(f"c{which}"), _name(f"s{system}"), head + length, PAGE, shared + own[:pages])


def _name(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def main() -> None:
    for rate in (60.0, 100.0, 140.0):
        for name, policy in POLICIES.items():
            outcome = simulate(policy, rate=rate, seconds=60.0)
            print(
                f"{rate:4.0f} req/s  {name:18}  hits {outcome.hits:.2f}  first token p50 {outcome.p50_ms:6.0f} ms  "
                f"p99 {outcome.p99_ms:6.0f} ms  fullest {outcome.fullest}",
                flush=True,
            )


if __name__ == "__main__":
    main()
