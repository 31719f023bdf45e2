"""validate: perplexity as llama.cpp counts it, and the distance from the truth of the file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import FAMILIES, tiny
from woolly import LLM, gguf
from woolly.errors import RequestError
from woolly.model import EXACT, Reference, build
from woolly.validate import DivergenceSum, ExactModel, LikelihoodSum, chunks, losses


def test_what_does_not_fill_a_chunk_is_left_out() -> None:
    assert chunks(range(11), 4, []) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert chunks(range(11), 4, [], 1) == [[0, 1, 2, 3]]


def test_every_chunk_begins_as_the_model_s_texts_begin() -> None:
    assert chunks(range(8), 4, [99]) == [[99, 1, 2, 3], [99, 5, 6, 7]]


def test_a_text_shorter_than_a_chunk_is_refused_with_both_numbers() -> None:
    with pytest.raises(RequestError, match="3 tokens, a chunk 4"):
        chunks(range(3), 4, [])


def test_the_perplexity_of_a_model_that_knows_nothing_is_its_vocabulary() -> None:
    score = LikelihoodSum()
    score.add(losses(np.zeros((5, 32), np.float32), [1, 2, 3, 4, 5]))
    assert score.likelihood.perplexity == pytest.approx(32)
    assert (score.likelihood.error, score.likelihood.tokens) == (0.0, 5)


def test_the_figure_and_its_error_are_those_of_the_formula() -> None:
    score = LikelihoodSum()
    score.add(np.array([1.0, 2.0]))
    score.add(np.array([3.0, 6.0]))
    assert score.likelihood.perplexity == pytest.approx(math.exp(3))
    assert score.likelihood.error == pytest.approx(math.exp(3) * math.sqrt((50 / 4 - 9) / 3))
    assert score.by_chunk == [pytest.approx(math.exp(1.5)), pytest.approx(math.exp(3))]


def test_the_divergence_of_a_distribution_from_itself_is_nothing() -> None:
    logits = np.random.default_rng(1).normal(size=(70, 50)).astype(np.float32)
    judge = DivergenceSum()
    judge.add(logits, logits + 3)
    assert judge.divergence.mean < 1e-12 and judge.divergence.same_top == 1 and judge.divergence.tokens == 70


def test_a_divergence_is_the_sum_of_its_definition() -> None:
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.6, 0.3])
    judge = DivergenceSum()
    judge.add(np.log(p)[None].astype(np.float32), np.log(q)[None].astype(np.float32))
    assert judge.divergence.mean == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-5)
    assert judge.divergence.same_top == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_fast_truth_is_the_defined_one_up_to_rounding(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", family)) as file:
        graph = build(file)
        tokens = np.random.default_rng(2).integers(0, graph.meta.vocab, 40)
        step = (tokens, [[0, 25, 0], [25, 15, 0]], np.arange(40))
        defined, fast = Reference(graph, file).run(*step), Reference(graph, file, ops=EXACT).run(*step)
    assert np.abs(fast - defined).max() <= 1e-4 * np.abs(defined).max()


def test_chunks_computed_together_give_the_rows_that_are_scored(tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf")
    with gguf.open(path) as file, LLM(path, context=16, kv="f32") as llm:
        exact = ExactModel(file)
        parts = chunks(np.random.default_rng(3).integers(0, llm.card.vocab, 32).tolist(), 16, [])
        judge = DivergenceSum()
        for part, truth in zip(parts, exact.logits(parts), strict=True):
            assert truth.shape == (7, llm.card.vocab)
            judge.add(truth, llm.logits(part)[8:-1])
        again = exact.logits(parts[1:])[0]
        assert np.abs(again - truth).max() <= 1e-4 * np.abs(truth).max()
        assert exact.seconds(32, 16) > 0
    assert judge.divergence.tokens == 14
    assert 0 < judge.divergence.mean < 5e-3  # the engine multiplies with 8-bit activations
