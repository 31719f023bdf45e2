"""The same request gives the same logits, to the bit, whatever was computed before it and in whose pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import LLM
from woolly.native import PICK_ROW
from woolly.request import End, Failed, Request, Sampling

PROMPT = tuple(range(40, 140))
CONTEXT = 256


@pytest.fixture
def llm(tmp_path: Path) -> Iterator[LLM]:
    with LLM(
        tiny(tmp_path / "tiny.gguf", context=CONTEXT), threads=2, sequences=1, draft="off"
    ) as made:  # a pool of one context
        yield made


def bits(llm: LLM, tokens: tuple[int, ...] = PROMPT, salt: bytes = b"") -> tuple[list[bytes], int]:
    """The logits of every answered token, as bytes, and how many tokens of the prompt were not computed."""
    rows: list[bytes] = []
    sampler = llm._engine.sampler
    pick = sampler._pick_rows
    assert pick is not None

    def recorded(logits: np.ndarray[Any, Any], picks: np.ndarray[Any, Any], count: int, masks: Any) -> list[int]:
        rows.append(logits[picks.view(PICK_ROW)["row"][:count]].tobytes())
        return pick(logits, picks, count, masks)

    sampler._pick_rows = recorded
    try:
        request = Request(tokens=tokens, sampling=Sampling(temperature=1.0, seed=3), max_tokens=12)
        for event in llm.submit(request, salt=salt):
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, End):
                assert len(rows) == event.usage.completion_tokens
                return rows, event.usage.cached_tokens
    finally:
        sampler._pick_rows = pick
    raise AssertionError("no end")


def test_d04_a_prefix_that_is_remembered_changes_no_bit(llm: LLM) -> None:
    cold, cached = bits(llm)
    assert cached == 0
    full, cached = bits(llm)
    assert (full, cached >= 64) == (cold, True)
    partly = PROMPT[:70] + tuple(range(200, 230))
    with LLM(llm.card.path, threads=2, draft="off") as other:
        fresh, none = bits(other, partly)
    hit, cached = bits(llm, partly)
    assert (hit, none, 0 < cached <= 70) == (fresh, 0, True)
    for first in range(5, 12):  # each fills most of the pool: what was remembered is driven out
        bits(llm, tuple(range(first, first + 230)))
    again, cached = bits(llm)
    assert (again, cached) == (cold, 0)
    assert bits(llm)[0] == cold


def test_s19_pages_that_others_have_used_give_the_bits_of_new_ones(llm: LLM) -> None:
    with LLM(llm.card.path, threads=2, draft="off") as other:
        fresh, _ = bits(other)
    for first in range(5, 12):
        bits(llm, tuple(range(first, first + 230)), salt=bytes((first,)))
    used, cached = bits(llm)
    assert (used, cached) == (fresh, 0)


def test_s18_what_one_salt_computed_is_computed_again_for_another(llm: LLM) -> None:
    cold, _ = bits(llm, salt=b"one")
    other, cached = bits(llm, salt=b"two")
    assert (other, cached) == (cold, 0)
    assert bits(llm, salt=b"one")[1] > 0
