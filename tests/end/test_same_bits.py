"""The same request gives the same logits, to the bit: whatever was computed before it and in whose pages, beside whom,
by how many threads, in which pieces, by which instructions, and in which process."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.families import FAMILY_CASES
from tests.tiny import tiny
from woolly import LLM, system
from woolly.device.cpu import Runner, machine
from woolly.device.runner import PICK_ROW
from woolly.engine import Sequence
from woolly.engine.scheduler import Scheduler
from woolly.errors import NativeError
from woolly.request import Completion, End, Failed, Request, Sampling, SubmitOptions, complete

PROMPT = tuple(range(40, 140))
CONTEXT = 256
LONG = [(17 * i + i // 7) % 100 for i in range(200)]  # tokens that every small model has
CASES = {case.name: case for case in FAMILY_CASES}


@pytest.fixture
def llm(tmp_path: Path) -> Iterator[LLM]:
    with LLM(
        tiny(tmp_path / "tiny.gguf", context=CONTEXT), threads=2, sequences=1, draft="off"
    ) as loaded:  # a pool of one context
        yield loaded


def bits(llm: LLM, tokens: tuple[int, ...] = PROMPT, salt: bytes = b"") -> tuple[list[bytes], int]:
    """The logits of every answered token, as bytes, and how many tokens of the prompt were not computed."""
    rows: list[bytes] = []
    sampler, runner = llm._engine.sampler, llm._engine.runner
    assert isinstance(runner, Runner)
    pick = sampler._pick

    def recorded(picks: np.ndarray[Any, Any], count: int, masks: Any) -> list[int]:
        logits = runner._outputs["logits"]
        rows.append(logits[picks.view(PICK_ROW)["row"][:count]].tobytes())
        return pick(picks, count, masks)

    sampler._pick = recorded
    try:
        request = Request(tokens=tokens, sampling=Sampling(temperature=1.0, seed=3), max_tokens=12)
        for event in llm.submit(request, SubmitOptions(salt)):
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, End):
                assert len(rows) == event.usage.completion_tokens
                return rows, event.usage.cached_tokens
    finally:
        sampler._pick = pick
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


@pytest.fixture(params=["llama", "gemma3", "lfm2", "mamba2"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """One that sees all, one with windows, one that sees and carries, and one that carries alone."""
    path = tmp_path / f"{request.param}.gguf"
    return tiny(path, context=CONTEXT) if request.param == "llama" else CASES[request.param].write(path)


def loaded(model: Path, **options: Any) -> LLM:
    return LLM(model, tokenizer=False, **{"threads": 2, "context": CONTEXT} | options)


def every_logit(model: Path, **options: Any) -> bytes:
    """The logits of every position."""
    with loaded(model, **options) as llm:
        return llm.logits(LONG).tobytes()


def asked(llm: LLM, seed: int, **how: Any) -> Any:
    """An answer that takes three pages to a prompt that takes one."""
    sampling = Sampling(temperature=1.0, seed=seed)
    request = Request(tokens=tuple(LONG[seed : 50 + seed]), sampling=sampling, max_tokens=120, logprobs=2)
    return llm.submit(request, SubmitOptions(**how))


def told(completion: Completion) -> tuple[Any, ...]:
    return completion.tokens, completion.logprobs, completion.finish_reason


@pytest.mark.parametrize("neighbours", [1, 7, 31])
def test_d01_neighbours_that_come_and_go_and_are_cancelled_change_no_bit(model: Path, neighbours: int) -> None:
    dice = random.Random(neighbours)
    alone = every_logit(model, sequences=32)
    with loaded(model, sequences=32) as llm:
        streams = [asked(llm, seed) for seed in range(neighbours)]
        for number in range(6):
            assert llm.logits(LONG).tobytes() == alone
            victim = dice.randrange(neighbours)
            streams[victim].cancel()
            streams[victim] = asked(llm, neighbours + number)
        for stream in streams:
            stream.cancel()
        assert llm.figures().tally.most_sequences > neighbours / 2


def test_d02_the_number_of_threads_changes_no_bit(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = os.cpu_count() or 1
    monkeypatch.setattr(system, "threads", lambda asked: asked)  # more than can run at the same time, too
    assert len({every_logit(model, threads=threads) for threads in {1, 2, 3, cores, 2 * cores}}) == 1


def test_d03_the_pieces_in_which_a_prompt_is_computed_change_no_bit(model: Path) -> None:
    assert len({every_logit(model, batch=rows) for rows in (1, 7, 16, 64, 512)}) == 1


def test_d08_the_instruction_set_changes_no_bit(model: Path) -> None:
    results = set()
    with loaded(model) as llm:
        for isa in machine()["sets"]:  # type: ignore[attr-defined]
            with llm.engine.runner.by(isa):
                results.add(llm.logits(LONG).tobytes())
    assert len(results) == 1


def test_d09_one_that_was_put_back_or_waited_for_its_reader_says_what_it_would_have_said(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back, times = Scheduler.put_back, []

    def counted(scheduler: Scheduler, sequence: Sequence) -> None:
        times.append(sequence)
        put_back(scheduler, sequence)

    monkeypatch.setattr(Scheduler, "put_back", counted)
    with loaded(model, sequences=1) as llm:
        alone, cache = [told(complete(asked(llm, seed))) for seed in range(6)], llm.info.cache
    assert not times
    with loaded(model, sequences=6, cache=2 * cache) as llm:  # a pool of two contexts
        for unread in (None, 1):
            streams = [asked(llm, seed, unread=unread) for seed in range(6)]
            for stream in [asked(llm, seed) for seed in range(6, 9)]:
                stream.cancel()
            assert [told(complete(stream)) for stream in streams] == alone
        assert times or not llm.engine.pages.groups


def _in_child(llm: LLM, answers: Any) -> None:
    try:
        llm.logits(LONG)
        answers.put("it answered")
    except NativeError as error:
        answers.put(error.message)
    answers.put(every_logit(Path(llm.card.path)))


def test_d06_f21_a_model_that_was_loaded_before_a_fork_says_so_and_one_loaded_after_it_has_the_same_bits(
    model: Path,
) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with loaded(model) as llm:
        mine = llm.logits(LONG).tobytes()
        child = context.Process(target=_in_child, args=(llm, answers))
        child.start()
        message, theirs = answers.get(timeout=60), answers.get(timeout=60)
        child.join(20)
        assert child.exitcode == 0 and "forked" in message and theirs == mine
        assert llm.logits(LONG).tobytes() == mine
