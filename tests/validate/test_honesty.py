"""Counts, silence and greedy text: what can be believed of an answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from woolly import LLM
from woolly.validate.client import Answer
from woolly.validate.honesty import (
    TIE,
    continuing_token,
    count_error,
    is_possible_count,
    least_cpu_s,
    recompute,
    tokens_of,
)
from woolly.validate.prompts import fresh_text
from woolly.validate.subject import ModelFile, read_file


@pytest.fixture(scope="module")
def file(model: Path) -> ModelFile:
    return read_file(model)


@pytest.mark.parametrize("count", [1, 2, 16, 128, 700])
def test_a_fresh_text_has_exactly_so_many_tokens(file: ModelFile, count: int) -> None:
    text = fresh_text(file.tokenizer, count, Random(3))
    assert file.prompt_tokens(text) == count
    assert text != fresh_text(file.tokenizer, count, Random(4)) or count < 3


def test_greedy_text_of_the_engine_is_that_of_the_reference(file: ModelFile, model: Path) -> None:
    prompts = [fresh_text(file.tokenizer, count, Random(count)) for count in (5, 9, 30)]
    with LLM(model) as llm:
        done = [llm.generate(prompt, max_tokens=12, temperature=0) for prompt in prompts]
    results = recompute(file, list(zip(prompts, [one.text for one in done], strict=True)))
    assert [one.why for one in results] == ["", "", ""]
    complete = [
        (one.tokens, answer.usage.completion_tokens)
        for one, answer in zip(results, done, strict=True)
        if one.covers_text
    ]
    assert complete and all(ours == theirs for ours, theirs in complete)


def test_text_that_the_model_would_not_say_is_told_with_what_it_would(file: ModelFile) -> None:
    (result,) = recompute(file, [("the man", " and the sea is wide")])
    assert "the reference says" in result.why


def test_a_token_that_rounding_may_prefer_is_followed_where_the_text_goes_on_with_it(file: ModelFile) -> None:
    """It need not be one that our tokenizer would cut the text into, nor the likeliest."""
    words = file.tokenizer
    best, near, far = (words.encode_within(text)[0] for text in ("a", "b", "c"))
    row = np.zeros(file.card.vocab, np.float32)
    row[best], row[near], row[far] = 9.0, 9.0 - TIE / 2, 9.0 - 2 * TIE
    assert continuing_token(words, row, b"ab") == best
    assert continuing_token(words, row, b"ba") == near
    assert continuing_token(words, row, b"ca") is None


def test_text_after_a_character_that_was_cut_is_neither_compared_nor_counted(file: ModelFile) -> None:
    (result,) = recompute(file, [("the man", "\ufffd and the sea")])
    assert (result.tokens, result.covers_text, result.why) == (0, False, "")


def answer(text: str = "the", prompt: int = 2, tokens: int = 2, reason: str = "length") -> Answer:
    return Answer(((0.1, text),), 0.2, prompt, tokens, 0, reason)


def test_counts_are_held_against_the_tokenizer(file: ModelFile) -> None:
    prompt = fresh_text(file.tokenizer, 2, Random(1))
    assert count_error(file, prompt, answer(), 2) == ""
    assert "counted as 3" in count_error(file, prompt, answer(prompt=3), 2)
    assert "at most 2" in count_error(file, prompt, answer(tokens=3), 2)
    assert "at most 4" in count_error(file, prompt, answer(tokens=3), 4)
    assert count_error(file, prompt, answer(tokens=2, reason="stop"), 4) == ""
    assert "was counted as 9" in count_error(file, prompt, answer(tokens=9, reason="stop"), 20)


def test_a_count_that_cannot_be_is_not_used_for_a_speed(file: ModelFile) -> None:
    own = len(file.tokenizer.encode("the and the"))
    assert tokens_of(file, answer("the and the", tokens=own)) == own
    assert tokens_of(file, answer("the and the", tokens=1000)) == own
    assert not is_possible_count(file.tokenizer, "the and the", 0)


def test_the_silence_of_a_stream_is_its_longest_gap() -> None:
    steady = Answer(tuple((0.1 * n, "x") for n in range(1, 10)), 1.0)
    answer = Answer(tuple((0.9 + 0.001 * n, "x") for n in range(9)), 1.0)
    late = Answer(((0.1, "x"), *((0.9 + 0.001 * n, "x") for n in range(9))), 1.0)
    assert steady.silence == pytest.approx(0.1)
    assert answer.silence == pytest.approx(0.9)
    assert late.silence == pytest.approx(0.8)
    assert steady.rate(9) == pytest.approx(10.0)
    assert answer.rate(9) == pytest.approx(9.0)  # not nine in nothing: over the whole time


def test_a_pause_that_nobody_notices_is_no_silence_and_makes_no_answer_faster() -> None:
    quick = Answer(tuple((0.03 + 0.0001 * n, "x") for n in range(9)), 0.031)
    assert quick.silence == 0.0
    assert quick.rate(9) == pytest.approx(9 / 0.031)


def test_no_processor_multiplies_a_billion_times_in_a_microsecond(file: ModelFile) -> None:
    """A trillion multiplications a second and core is beyond every processor that Woolly runs on."""
    large = replace(file, token_macs=10**9)
    assert least_cpu_s(large, 1000) > 0.5
    assert least_cpu_s(large, 1000) > least_cpu_s(file, 1000)
