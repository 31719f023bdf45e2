"""The turn: what is asked for is answered, whatever else happens; nobody waits forever and no page is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.fake import Fake, logits_of
from tests.engine.test_simulation import alone
from tests.tiny import byte_letters
from woolly.engine import Engine, Sequence, Stream
from woolly.errors import BusyError, ContextError, NativeError, RequestError
from woolly.native import Batch
from woolly.request import End, Event, Failed, Prompt, Sampling, Start, Text
from woolly.text import TextStream, Tokenizer

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]
WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0)


def asked(
    prompt: list[int], *, tokens: int = 10, sampling: Sampling = WARM, seed: int = 1, end: int = -1, page: int = 4
) -> Sequence:
    limit, ends = len(prompt) + tokens, frozenset((end,))
    return Sequence(prompt, limit=limit, page=page, sampling=sampling, seed=seed, ends=ends)


def work_off(engine: Engine) -> None:
    while engine.running or engine.waiting or not engine.inbox.empty():
        engine.turn()


def answer(engine: Engine, sequence: Sequence) -> list[Event]:
    stream = engine.add(sequence)
    work_off(engine)
    return list(stream)


def said(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Text) for token in event.tokens]


def end_of(events: list[Event]) -> End:
    assert isinstance(events[-1], End)
    return events[-1]


def free_pages(engine: Engine) -> bool:
    return engine.pages.available == engine.pages.count and not any(engine.pages.holders)


def test_an_answer_begins_and_ends_and_has_every_token() -> None:
    engine = Engine(Fake())
    events = answer(engine, asked(PROMPT))
    assert events[0] == Start(prompt_tokens=len(PROMPT), cached_tokens=0)
    assert said(events) == alone(PROMPT, WARM, 1, len(PROMPT) + 10, frozenset(), 32)
    end = end_of(events)
    assert (end.reason, end.usage.completion_tokens, end.seed) == ("length", 10, 1)
    assert free_pages(engine)


@pytest.mark.parametrize("rows", [1, 3, 7, 16, 64])
def test_a_prompt_in_chunks_gives_the_same_tokens(rows: int) -> None:
    whole = said(answer(Engine(Fake(rows=64)), asked(PROMPT)))
    assert said(answer(Engine(Fake(rows=rows)), asked(PROMPT))) == whole


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    engine = Engine(Fake())
    first = said(answer(engine, asked(PROMPT, seed=5)))
    assert said(answer(engine, asked(PROMPT, seed=5))) == first
    assert said(answer(Engine(Fake()), asked(PROMPT, seed=5))) == first
    assert said(answer(engine, asked(PROMPT, seed=6))) != first


def test_an_end_token_ends_and_is_the_last_token() -> None:
    tokens = said(answer(Engine(Fake()), asked(PROMPT)))
    events = answer(Engine(Fake()), asked(PROMPT, end=tokens[3]))
    assert said(events) == tokens[: tokens.index(tokens[3]) + 1]
    assert end_of(events).reason == "stop"


def test_the_next_turn_of_a_chat_computes_only_what_no_page_holds() -> None:
    runner = Fake(context=256, pages=64, page=8)
    engine = Engine(runner)
    first = answer(engine, asked(PROMPT, tokens=20, page=8))
    history = PROMPT + said(first) + [1, 2, 3]
    runner.computed = 0
    second = answer(engine, asked(history, tokens=5, page=8))
    whole = (len(history) - 3 - 1) // 8 * 8  # the answer's last token was never computed
    assert second[0] == Start(prompt_tokens=len(history), cached_tokens=whole)
    assert runner.computed == len(history) - whole + 4
    assert end_of(second).usage.cached_tokens == whole
    assert said(second) == said(answer(Engine(Fake(page=8)), asked(history, tokens=5, page=8)))


def test_an_equal_prompt_computes_its_last_token_again_and_no_more_than_a_page() -> None:
    runner = Fake(page=2)
    engine = Engine(runner)
    answer(engine, asked(PROMPT, tokens=1, page=2))
    runner.computed = 0
    answer(engine, asked(PROMPT, tokens=1, page=2))
    assert runner.computed == 2


def test_several_answers_at_once_are_those_of_each_alone() -> None:
    engine = Engine(Fake(rows=6, sequences=3, wants=3))
    streams = [engine.add(asked([seed, *PROMPT], seed=seed)) for seed in range(5)]
    work_off(engine)
    for seed, stream in enumerate(streams):
        assert said(list(stream)) == alone([seed, *PROMPT], WARM, seed, len(PROMPT) + 11, frozenset(), 32)
    assert free_pages(engine)


def test_a_cancelled_answer_is_gone_before_the_next_step_and_its_pages_are_free() -> None:
    engine = Engine(Fake())
    one, other = engine.add(asked(PROMPT, tokens=100)), engine.add(asked([7, *PROMPT]))
    for _ in range(4):
        engine.turn()
    one.cancel()
    engine.turn()
    assert [sequence.stream for sequence in engine.running] == [other]
    events = list(one)
    assert end_of(events).reason == "cancelled"
    assert end_of(events).usage.completion_tokens == len(said(events))
    work_off(engine)
    assert end_of(list(other)).reason == "length"
    assert free_pages(engine)


def test_a_waiting_answer_can_be_cancelled() -> None:
    engine = Engine(Fake(sequences=1))
    engine.add(asked(PROMPT))
    waiting = engine.add(asked(PROMPT))
    engine.turn()
    waiting.cancel()
    engine.turn()
    assert [type(event) for event in waiting] == [End]


class Stoppable(Fake):
    """Runs until it is stopped, and tells when it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.stopped, self.runs = threading.Event(), threading.Event(), 0

    def run(self, batch: Batch) -> NDArray[np.float32] | None:
        self.runs += 1
        self.begun.set()
        assert self.stopped.wait(10), "nobody stopped the step"
        self.stopped.clear()
        return None

    def stop(self) -> None:
        self.stopped.set()


def test_cancelling_the_only_answer_stops_the_step_that_computes_it() -> None:
    runner = Stoppable()
    engine = Engine(runner)
    engine.start()
    stream = engine.add(asked(PROMPT))
    runner.begun.wait(10)
    stream.cancel()
    assert [type(event) for event in stream] == [Start, End]
    assert runner.runs == 1
    engine.close()
    assert runner.closed


def test_closing_stops_the_step_and_ends_every_answer() -> None:
    runner = Stoppable()
    engine = Engine(runner)
    engine.start()
    streams = [engine.add(asked(PROMPT)) for _ in range(3)]
    runner.begun.wait(10)
    engine.close()
    for stream in streams:
        assert end_of(list(stream)).reason == "cancelled"
    assert runner.closed
    engine.close()
    with pytest.raises(BusyError, match="closed"):
        engine.add(asked(PROMPT))


def test_a_stopped_step_advances_nothing() -> None:
    class Sometimes(Fake):
        turn = 0

        def run(self, batch: Batch) -> NDArray[np.float32] | None:
            self.turn += 1
            logits = super().run(batch)
            return logits if self.turn % 3 else None

    assert said(answer(Engine(Sometimes()), asked(PROMPT))) == said(answer(Engine(Fake()), asked(PROMPT)))


class Failing(Fake):
    def __init__(self, error: Callable[[], Exception]) -> None:
        super().__init__()
        self.error: Callable[[], Exception] | None = error

    def run(self, batch: Batch) -> NDArray[np.float32] | None:
        if self.error is not None:
            raise self.error()
        return super().run(batch)


def test_a_failing_step_fails_its_answers_and_the_engine_goes_on() -> None:
    runner = Failing(lambda: MemoryError("gone"))
    engine = Engine(runner)
    events = answer(engine, asked(PROMPT))
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, NativeError) and "MemoryError" in events[-1].error.message
    assert free_pages(engine)
    runner.error = None
    assert end_of(answer(engine, asked(PROMPT))).reason == "length"


def test_an_error_of_the_core_is_told_as_it_is() -> None:
    error = NativeError("the batch is not sound")
    events = answer(Engine(Failing(lambda: error)), asked(PROMPT))
    assert events[-1] == Failed(error)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_logits_that_are_not_finite_fail_their_own_answer_alone(wrong: float) -> None:
    class Poisoned(Fake):
        def run(self, batch: Batch) -> NDArray[np.float32] | None:
            logits = super().run(batch)
            if logits is not None and len(batch.spans) == 2 and batch.spans[1, 2] > 16:
                logits[1, 5] = wrong
            return logits

    engine = Engine(Poisoned())
    well, ill = engine.add(asked(PROMPT)), engine.add(asked(PROMPT, seed=2))
    work_off(engine)
    events = list(ill)
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code == "generation_error"
    assert said(events) == alone(PROMPT, WARM, 2, 99, frozenset(), 32)[: len(said(events))]
    assert said(list(well)) == alone(PROMPT, WARM, 1, len(PROMPT) + 10, frozenset(), 32)
    assert free_pages(engine)


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    engine = Engine(Fake(context=40, page=4, pages=8))
    engine.add(asked(PROMPT, tokens=18))
    with pytest.raises(ContextError) as caught:
        engine.add(asked(PROMPT, tokens=19))  # the pool holds 32 positions
    assert (caught.value.prompt, caught.value.answer, caught.value.limit) == (14, 19, 32)
    with pytest.raises(RequestError):
        engine.add(asked([]))


def test_scores_are_the_logits_of_every_token() -> None:
    runner = Fake(rows=5, wants=3)
    engine = Engine(runner)
    answer(engine, asked(PROMPT))
    rows = np.zeros((len(PROMPT), 32), np.float32)
    events = answer(engine, Sequence(PROMPT, limit=len(PROMPT), page=4, scores=rows))
    assert [type(event) for event in events] == [Start, End]
    for index, row in enumerate(rows):
        assert (row == logits_of(np.array(PROMPT[: index + 1], np.int32), 32)).all()


def test_the_likelihoods_of_a_prompt_come_before_the_answer_and_leave_it_as_it_is() -> None:
    engine = Engine(Fake(rows=5, wants=3))
    plain = said(answer(engine, asked(PROMPT, sampling=Sampling(temperature=0.0))))
    told = Sequence(PROMPT, limit=len(PROMPT) + 10, page=4, logprobs=2, prompt_logprobs=True)  # its pages are known
    events = answer(engine, told)
    assert [type(event) for event in events[:3]] == [Start, Prompt, Text]
    assert said(events) == plain
    heard = events[1]
    assert isinstance(heard, Prompt)
    assert [heard.first[0], *(row.token for row in heard.logprobs)] == PROMPT
    for index, row in enumerate(heard.logprobs):
        logits = logits_of(np.array(PROMPT[: index + 1], np.int32), 32).astype(np.float64)
        assert row.value == pytest.approx(logits[PROMPT[index + 1]] - np.log(np.exp(logits).sum()))


def test_a_prompt_that_is_told_of_leaves_rows_to_the_answers_beside_it() -> None:
    engine = Engine(Fake(rows=16, wants=3, context=128))
    told = Sequence(PROMPT * 4, limit=len(PROMPT) * 4 + 2, page=4, logprobs=0, prompt_logprobs=True)
    engine.add(told)
    other = asked(PROMPT, tokens=12)
    engine.add(other)
    for _ in range(14):
        engine.turn()
    assert len(other.tokens) == len(PROMPT) + 12  # has ended while the long prompt was still being told of
    assert told.told < told.every


def test_penalties_and_bias_reach_the_choice() -> None:
    greedy = Sampling(temperature=0.0)
    tokens = said(answer(Engine(Fake()), asked(PROMPT, sampling=greedy)))
    banned = Sampling(temperature=0.0, logit_bias={tokens[0]: -100.0})
    assert said(answer(Engine(Fake()), asked(PROMPT, sampling=banned)))[0] != tokens[0]
    forced = Sampling(temperature=0.0, logit_bias={17: 100.0})
    assert said(answer(Engine(Fake()), asked(PROMPT, sampling=forced))) == [17] * 10
    for once in (Sampling(temperature=0.0, presence_penalty=100.0), Sampling(temperature=0.0, frequency_penalty=100.0)):
        unique = said(answer(Engine(Fake()), asked(PROMPT, tokens=30, sampling=once)))
        assert len(set(unique)) == 30  # nothing twice, though the prompt's tokens may come once
    shy = said(answer(Engine(Fake()), asked(PROMPT, sampling=Sampling(temperature=0.0, repetition_penalty=100.0))))
    assert not set(shy) & set(PROMPT)


END_TOKEN = 256
BYTES = Tokenizer(  # token i is byte i
    {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*byte_letters(), "<end>"],
        "tokenizer.ggml.token_type": np.array([1] * 256 + [3], np.int32),
        "tokenizer.ggml.merges": [],
    }
)


def spelled(answer_bytes: bytes, *stops: str, special: int | None = None) -> list[Event]:
    """The events of an answer that consists of these bytes, one a token; the special token comes at an index."""
    tokens = [END_TOKEN if i == special else byte for i, byte in enumerate(answer_bytes)]

    class Script(Fake):
        def run(self, batch: Batch) -> NDArray[np.float32] | None:
            logits = super().run(batch)
            if logits is not None and len(batch.want):
                logits[0, tokens[int(batch.spans[0, 2])]] = 100.0
            return logits

    greedy, text = Sampling(temperature=0.0), TextStream(BYTES, stops)
    sequence = Sequence([0], limit=1 + len(tokens), page=4, sampling=greedy, text=text)
    return answer(Engine(Script(vocab=257)), sequence)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def test_a_stop_text_ends_the_answer_before_it_and_its_tokens_are_counted() -> None:
    events = spelled(b"abcdef", "cde")
    assert text_of(events) == "ab"
    assert end_of(events).reason == "stop"
    assert end_of(events).usage.completion_tokens == 5
    assert said(events) == list(b"abcde")


def test_what_only_looked_like_a_stop_is_sent_after_all() -> None:
    events = spelled(b"abcabc", "cx", "bcab!")
    assert text_of(events) == "abcabc"
    assert end_of(events).reason == "length"
    assert said(events) == list(b"abcabc")


def test_a_stop_that_is_a_special_tokens_text_stops_at_the_token() -> None:
    events = spelled(b"ab?c", "<end>", special=2)
    assert (text_of(events), end_of(events).reason, said(events)) == ("ab", "stop", [*b"ab", END_TOKEN])


def test_half_a_character_at_the_end_becomes_one_mark() -> None:
    events = spelled("aß".encode()[:2])
    assert text_of(events) == "a\N{REPLACEMENT CHARACTER}"
    assert said(events) == list("aß".encode()[:2])


def test_every_piece_is_whole_characters() -> None:
    events = spelled("a🐑ß".encode())
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "🐑", "ß"]
    assert [event.tokens for event in events if isinstance(event, Text)][1] == tuple("🐑".encode())


def test_a_mistake_in_the_last_piece_of_text_leaves_nobody_waiting() -> None:
    class Broken(TextStream):
        def flush(self) -> str:
            raise ValueError("a mistake")

    sequence = Sequence([65], limit=4, page=4, text=Broken(BYTES))
    events = answer(Engine(Fake()), sequence)
    assert isinstance(events[-1], Failed) and "a mistake" in events[-1].error.message


def test_leaving_the_loop_cancels_within_a_step() -> None:
    engine = Engine(Fake(context=100_000, pages=30_000))
    engine.start()
    for event in engine.add(asked(PROMPT, tokens=90_000)):
        if isinstance(event, Text):
            break
    rows = np.zeros((1, 32), np.float32)
    list(engine.add(Sequence([1], limit=1, page=4, scores=rows)))  # a turn later
    assert not engine.running
    assert free_pages(engine)
    engine.close()


def test_many_threads_are_answered_at_once() -> None:
    engine = Engine(Fake(rows=8, sequences=3, wants=3))
    engine.start()
    results: dict[int, list[int]] = {}

    def ask(seed: int) -> None:
        results[seed] = said(list(engine.add(asked([seed, *PROMPT], seed=seed))))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.close()
    assert free_pages(engine)
    for seed, tokens in results.items():
        assert tokens == alone([seed, *PROMPT], WARM, seed, len(PROMPT) + 11, frozenset(), 32)


def test_a_mistake_in_the_engine_itself_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Fake())
    streams: list[Stream] = []
    first = threading.Event()

    def broken(*_: object) -> None:
        first.wait(10)
        raise AssertionError("a mistake")

    monkeypatch.setattr("woolly.engine.engine.schedule", broken)
    engine.start()
    streams = [engine.add(asked(PROMPT)) for _ in range(3)]
    first.set()
    for stream in streams:
        assert isinstance(list(stream)[-1], Failed)
    engine.close()
    with pytest.raises(BusyError):
        engine.add(asked(PROMPT))


def test_an_answer_pauses_while_its_reader_is_behind_and_then_says_the_same() -> None:
    expected = said(answer(Engine(Fake()), asked(PROMPT, tokens=100)))
    engine = Engine(Fake())
    stream = engine.add(asked(PROMPT, tokens=100), unread=8)
    for _ in range(20):
        engine.take_inbox()
        engine.turn() if stream.room() else None
    assert not stream.room()
    engine.start()
    assert said(list(stream)) == expected
    engine.close()


def test_logprobs_are_those_of_the_models_own_logits() -> None:
    sampling = Sampling(temperature=0.0, logit_bias={7: 100.0})
    sequence = Sequence(PROMPT, limit=len(PROMPT) + 1, page=4, sampling=sampling, logprobs=2)
    (text,) = [event for event in answer(Engine(Fake()), sequence) if isinstance(event, Text)]
    raw = logits_of(np.array(PROMPT, np.int32), 32).astype(np.float64)
    logs = raw - np.log(np.exp(raw).sum())
    (row,) = text.logprobs
    assert row.token == 7
    assert row.value == pytest.approx(logs[7])
    assert [token for token, _, _ in row.top] == np.argsort(-logs)[:2].tolist()
