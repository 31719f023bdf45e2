"""Models that carry a state: the next turn of a chat, and a beginning that many share, begin with a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.families import FAMILY_CASES
from woolly import LLM
from woolly.request import End, Event, Failed, Request, Sampling, Text

CASES = {case.name: case for case in FAMILY_CASES}
PAGE = 64
every_kind = pytest.mark.parametrize("name", ["mamba2", "mamba", "rwkv7", "lfm2", "qwen3next", "kimi-linear"])


def opened(name: str, folder: Path, **more: int) -> LLM:
    path = folder / f"{name}.gguf"
    if not path.exists():
        CASES[name].write(path)
    return LLM(path, tokenizer=False, context=2048, threads=2, **more)


def text(name: str, count: int, seed: int = 0) -> list[int]:
    return [(17 * i + i // 7 + seed) % CASES[name].vocab for i in range(count)]


class Answer(NamedTuple):
    """Its tokens with their likelihoods, which differ where a bit of the logits does; and what was not computed."""

    tokens: list[tuple[int, float]]
    cached: int


def request(prompt: list[int], count: int = 20) -> Request:
    return Request(tokens=tuple(prompt), sampling=Sampling(temperature=0.0), max_tokens=count, logprobs=1)


def heard(events: Iterable[Event]) -> Answer:
    tokens: list[tuple[int, float]] = []
    for event in events:
        if isinstance(event, Text):
            tokens += [(row.token, row.value) for row in event.logprobs]
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, End):
            return Answer(tokens, event.usage.cached_tokens)
    raise AssertionError("no end")


def ask(llm: LLM, prompt: list[int], count: int = 20) -> Answer:
    return heard(llm.submit(request(prompt, count)))


@every_kind
def test_the_next_turn_of_a_chat_begins_with_the_last_snapshot_and_has_the_bits_of_a_cold_start(
    name: str, tmp_path: Path
) -> None:
    with opened(name, tmp_path) as llm:
        first = text(name, 200)
        answer = ask(llm, first)
        assert answer.cached == 0 and len(answer.tokens) == 20
        second = [*first, *(token for token, _ in answer.tokens), *text(name, 30, seed=5)]
        turn = ask(llm, second)
        assert turn.cached == 199 // PAGE * PAGE
    with opened(name, tmp_path) as llm:
        assert ask(llm, second) == (turn.tokens, 0)


@every_kind
def test_a_beginning_that_many_share_is_reused_at_multiples_of_1024(name: str, tmp_path: Path) -> None:
    system = text(name, 1100)
    with opened(name, tmp_path) as llm:
        ask(llm, [*system, *text(name, 100, seed=1)], 4)
        other = ask(llm, [*system, *text(name, 50, seed=2)], 4)
        assert other.cached == 1024
    with opened(name, tmp_path) as llm:
        assert ask(llm, [*system, *text(name, 50, seed=2)], 4) == (other.tokens, 0)


@every_kind
def test_answers_that_are_made_together_have_the_bits_of_one_alone(name: str, tmp_path: Path) -> None:
    prompts = [text(name, 90 + 40 * i, seed=i % 2) for i in range(5)]
    with opened(name, tmp_path) as llm:
        together = [heard(stream) for stream in [llm.submit(request(prompt, 12)) for prompt in prompts]]
    with opened(name, tmp_path, sequences=1) as llm:
        for prompt, completion in zip(prompts, together, strict=True):
            assert ask(llm, prompt, 12).tokens == completion.tokens
