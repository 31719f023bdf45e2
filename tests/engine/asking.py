"""Asking an engine without a thread: a sequence goes in, turns are taken until it has ended, its events come out."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tests.engine.fake import logits_after
from tests.tiny import byte_letters
from woolly.engine import AnswerOptions, Engine, Sequence
from woolly.engine.grammar.constrain import Grammar
from woolly.engine.sampling.dry import dry
from woolly.engine.sampling.stages import Surprise, bias, last, penalties, pick
from woolly.request import End, Event, Sampling, SubmitOptions, Text
from woolly.text import Tokenizer

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]

WARM = Sampling(temperature=1.0, top_k=0, top_p=1.0)

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


def asked(
    prompt: list[int],
    *,
    tokens: int = 10,
    sampling: Sampling = WARM,
    seed: int = 1,
    end: int = -1,
    unread: int | None = None,
) -> Sequence:
    how, options = AnswerOptions(sampling, seed, frozenset((end,))), SubmitOptions(unread=unread)
    return Sequence(prompt, limit=len(prompt) + tokens, answer=how, options=options)


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
    return engine.pages.available == engine.pages.count and not any(any(g.holders) for g in engine.pages.groups)


def alone(
    prompt: list[int],
    sampling: Sampling,
    seed: int,
    limit: int,
    ends: frozenset[int],
    vocab: int,
    *,
    windows: tuple[int, ...] = (0,),
    slots: bool = False,
    grammar: Grammar | None = None,
    lora: NDArray[np.float32] | None = None,
) -> list[int]:
    """The tokens of an answer computed without engine, pages or neighbours, each picked from its logits."""
    tokens, surprise = list(prompt), Surprise()
    matcher = grammar.matcher() if grammar is not None else None
    mask = np.zeros(matcher.words, np.uint32) if matcher is not None else None
    while len(tokens) < limit:
        logits = logits_after(tokens, vocab, windows, slots=slots, lora=lora)
        penalties(logits, last(tokens, sampling.repeat_last_n), Counter(tokens[len(prompt) :]), sampling)
        dry(logits, tokens, np.zeros(len(tokens), np.bool_), sampling)
        bias(logits, sampling)
        if matcher is not None and mask is not None:
            matcher.fill(mask)
        tokens.append(pick(logits, sampling, seed=seed, position=len(tokens), mask=mask, surprise=surprise))
        if tokens[-1] in ends:
            break
        if matcher is not None:
            matcher.take(tokens[-1])
            if matcher.complete:
                break
    return tokens[len(prompt) :]
