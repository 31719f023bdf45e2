"""Routing: turns go to the replica with their pages, none is overloaded, joining and leaving move few turns."""

from __future__ import annotations

import random

import pytest

from tests.server.fleet_simulation import POLICIES, simulate
from woolly.engine import Engine, Sequence, page_names
from woolly.fleet.routing import BY_CONVERSATION, Prompt, ReplicaLoad, candidates, cost_s, keys_of, ranked
from woolly.request import Request, SubmitOptions

IDS = [f"{number:016x}" for number in range(100)]


def prompt(conversation: bytes = b"c", system: bytes = b"s", pages: int = 10) -> Prompt:
    return Prompt(conversation, system, 64 * pages + 5, 64, [bytes([index]) * 8 for index in range(pages)])


def test_the_turns_of_a_conversation_have_the_same_candidates_by_their_beginning() -> None:
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    later = [*first, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Why?"}]
    other = [*first[:1], {"role": "user", "content": "Hello"}]
    keys = [keys_of(Request(messages=tuple(each)), b"salt") for each in (first, later, other)]  # type: ignore[arg-type]
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[2][0]
    assert keys[0][1] == keys[2][1]  # they share the system prompt
    assert keys_of(Request(messages=tuple(first)), b"of another") != keys[0]  # type: ignore[arg-type]


def test_a_conversation_has_few_candidates_among_many_and_all_among_few() -> None:
    chosen = candidates(IDS, prompt(), random.Random(1).choice)
    assert chosen[:BY_CONVERSATION] == ranked(IDS, b"c", BY_CONVERSATION)
    assert ranked(IDS, b"s", 1)[0] in chosen
    assert len(chosen) <= BY_CONVERSATION + 2
    assert sorted(candidates(IDS[:4], prompt(), random.choice)) == IDS[:4]


def test_who_goes_moves_its_own_conversations_and_no_others() -> None:
    keys = [f"conversation {number}".encode() for number in range(1000)]
    before = {key: ranked(IDS, key, 1)[0] for key in keys}
    after = {key: ranked(IDS[1:], key, 1)[0] for key in keys}
    moved = [key for key in keys if before[key] != after[key]]
    assert all(before[key] == IDS[0] for key in moved)
    assert 0 < len(moved) < 30  # about one in a hundred


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (ReplicaLoad(pages={bytes([0]) * 8, bytes([1]) * 8}), ReplicaLoad()),
        (ReplicaLoad(sent={bytes([0]) * 8}), ReplicaLoad(pages={bytes([1]) * 8})),  # pages count only from the first on
        (ReplicaLoad(), ReplicaLoad(queued=1000)),
        (ReplicaLoad(running=3), ReplicaLoad(running=9)),
        (ReplicaLoad(running=14), ReplicaLoad(running=16)),
        (ReplicaLoad(prompt_rate=900.0), ReplicaLoad(prompt_rate=300.0)),
    ],
)
def test_who_would_answer_sooner_costs_less(better: ReplicaLoad, worse: ReplicaLoad) -> None:
    assert cost_s(better, prompt()) < cost_s(worse, prompt())


def test_pages_have_the_names_that_the_engine_gives_them() -> None:
    from tests.engine.fake import Fake

    engine = Engine(Fake())
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]
    engine.add(Sequence(tokens, limit=len(tokens) + 2, options=SubmitOptions(b"salt")))
    while engine.running or engine.waiting or not engine.inbox.empty():
        engine.turn()
    size = engine.pages.size
    assert set(page_names(b"salt", tokens, size)) <= set(engine.remembered())
    assert len(page_names(b"salt", tokens, size)) == len(tokens) // size


def test_a_hundred_replicas_find_more_pages_and_answer_sooner_than_by_any_other_policy() -> None:
    outcomes = {name: simulate(policy, rate=100.0, seconds=24.0) for name, policy in POLICIES.items()}
    best = outcomes.pop("estimate")
    assert best.hits > 1.3 * outcomes["random"].hits
    assert best.p50_ms < 0.5 * min(outcomes["random"].p50_ms, outcomes["least connections"].p50_ms)
    assert best.p99_ms < min(other.p99_ms for other in outcomes.values())
    assert best.fullest < 32, "somebody had no slot left, while most replicas were idle"
