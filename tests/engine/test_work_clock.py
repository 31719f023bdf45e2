"""A garbage collection is not counted as the work of the thread in which it runs, nor of the grammar running there."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tests.engine.asking import work_off
from tests.engine.fake import Fake
from tests.text.small import CONTROL, bpe
from woolly.engine import AnswerOptions, Engine, Grammars, Sequence
from woolly.engine.work_clock import WorkClock, work_clock, worked_s
from woolly.limits import LIMITS
from woolly.request import End, Sampling
from woolly.request.format import Format
from woolly.text import Tokenizer

LONG_S = 2 * LIMITS.mask_s


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.fixture
def long_collections() -> Iterator[None]:
    """Each collection takes long, as in a program of a million objects."""
    work_clock()  # makes the clock, whose callback must come before this one

    def slow(phase: str, _figures: dict[str, int]) -> None:
        if phase == "start":
            work(LONG_S)

    gc.disable()  # only the tests themselves collect garbage
    gc.callbacks.append(slow)
    yield
    gc.callbacks.remove(slow)
    gc.enable()


def test_work_is_counted_and_a_collection_is_not(long_collections: None) -> None:
    begun, seen = worked_s(), work_clock().read()
    gc.collect()
    work(LONG_S)
    assert LONG_S <= worked_s() - begun < 2 * LONG_S
    assert LONG_S <= work_clock().read() - seen < 2 * LONG_S


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="threads here do not see each other's work")
def test_another_thread_sees_the_work_and_no_collection(long_collections: None) -> None:
    free = Event()

    def begin() -> tuple[WorkClock, float]:
        clock = work_clock()
        return clock, clock.read()

    with ThreadPoolExecutor(1) as thread:
        clock, begun = thread.submit(begin).result()
        thread.submit(gc.collect).result()
        thread.submit(work, LONG_S).result()
        thread.submit(free.wait, 10)
        assert LONG_S <= clock.read() - begun < 2 * LONG_S
        free.set()


class Collecting:
    """A matcher of llguidance whose mask, or step by a token, triggers a garbage collection."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        if name in ("unsafe_compute_mask_ptr", "consume_token"):
            gc.collect()
        return getattr(self._state, name)


def test_a_grammar_is_not_blamed_for_a_collection_while_it_was_at_work(long_collections: None) -> None:
    words = Tokenizer(bpe(["a b"], {"<end>": CONTROL}, eos_token_id=257))
    grammar = Grammars(words).grammar(Format("regex", "[a-c]"))
    matcher = grammar.matcher()
    matcher._state = Collecting(matcher._state)  # type: ignore[assignment]
    warm = Sampling(temperature=1.5, top_k=0, top_p=1.0)
    engine = Engine(Fake(vocab=words.vocab))
    how = AnswerOptions(warm, 1, words.ends, matcher=matcher)
    stream = engine.add(Sequence([3, 1, 4], limit=20, answer=how))
    work_off(engine)
    assert isinstance(list(stream)[-1], End)
    assert not grammar.slow and not matcher.late
