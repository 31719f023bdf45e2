"""The library against golden logits: small models of every type and family, and the default model on real text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.golden import CASES, DATA, Case, Logits, every_case
from woolly import LLM
from woolly.formats import FORMATS
from woolly.native import machine

TEXTS = DATA / "smollm2"
EXACT_MODE = 1e-8  # the largest NMSE of 16-bit activations


def logsoftmax(x: Logits) -> NDArray[np.float64]:
    y = x.astype(np.float64)
    y -= y.max(-1, keepdims=True)
    return y - np.log(np.exp(y).sum(-1, keepdims=True))


def test_every_type_has_a_golden_model_in_the_tree() -> None:
    assert {case.family for case in CASES} >= {"llama", "qwen3"}  # the others: test_families.py
    assert {name for case in CASES for name in case.types} == set(FORMATS)


@every_case
def test_a_golden_model_is_as_exact_as_its_arithmetic(case: Case) -> None:
    with LLM(case.file, kv="f32", tokenizer=False, context=case.context) as llm:
        assert case.error(llm.logits(case.tokens.tolist())) <= case.bar


@every_case
def test_an_exact_golden_model_is_as_exact_as_its_file(case: Case) -> None:
    with LLM(case.file, exact=True, tokenizer=False, context=case.context) as llm:
        assert case.error(llm.logits(case.tokens.tolist())) <= min(case.bar, EXACT_MODE)


# -- the default model


@cache
def smollm2_logits(path: Path, name: str, exact: bool = False) -> Logits:
    with LLM(path, context=2048, exact=exact) as llm:
        return llm.logits(np.load(TEXTS / f"{name}.npz")["tokens"].tolist())


def negative_log_likelihood(logits: Logits, tokens: NDArray[np.int32]) -> float:
    scores = logsoftmax(logits[:-1])
    return float(-scores[np.arange(len(tokens) - 1), tokens[1:]].mean())


@pytest.mark.parametrize("name", ["text", "long"])
def test_the_default_model_reads_a_text_as_likely_as_the_reference(smollm2: Path, name: str) -> None:
    tokens = np.load(TEXTS / f"{name}.npz")["tokens"]
    reference = json.loads((TEXTS / f"{name}.json").read_text())["reference"]["nll"]
    assert abs(negative_log_likelihood(smollm2_logits(smollm2, name), tokens) - reference) <= 0.015


@pytest.mark.parametrize(("exact", "most"), [(False, 0.0029), (True, 1e-6)], ids=["normal", "exact"])
def test_the_default_model_is_close_to_the_reference_on_a_text(smollm2: Path, exact: bool, most: float) -> None:
    golden = np.load(TEXTS / "text.npz")
    a = golden["top_logits"].astype(np.float64) - golden["logsumexp"][:, None]
    b = np.take_along_axis(logsoftmax(smollm2_logits(smollm2, "text", exact)), golden["top_ids"], -1)
    p = np.exp(a)
    rest, rest_here = (np.clip(1.0 - np.exp(x).sum(-1), 1e-12, None) for x in (a, b))
    divergence = (p * (a - b)).sum(-1) + rest * (np.log(rest) - np.log(rest_here))
    assert divergence.mean() <= most


def test_the_default_model_says_what_the_reference_is_sure_of(smollm2: Path) -> None:
    sure = 0
    with LLM(smollm2, context=2048) as llm:
        for chat in json.loads((TEXTS / "chat.json").read_text())["cases"]:
            ids, answer = chat["prompt_ids"], chat["greedy_ids"]
            said = llm.logits(ids + answer)[len(ids) - 1 : -1].argmax(-1)
            for found, expected, margin in zip(said, answer, chat["margin"], strict=True):
                assert found == expected or margin < 0.5, (chat["messages"], margin)
                sure += margin >= 0.5
    assert sure > 250


def test_chunks_and_threads_do_not_move_a_bit_of_the_default_model(smollm2: Path) -> None:
    tokens = np.load(TEXTS / "text.npz")["tokens"].tolist()
    expected = smollm2_logits(smollm2, "text")
    for batch, threads, count in ((512, 1, 512), (32, 2, 512), (7, 3, 256), (1, 2, 64)):
        with LLM(smollm2, context=2048, batch=batch, threads=threads) as llm:
            assert llm.logits(tokens[:count]).tobytes() == expected[:count].tobytes(), (batch, threads)


SCORE = """
import sys, numpy as np
from woolly import LLM
with LLM(sys.argv[1], context=2048) as llm:
    assert llm.info.isa == sys.argv[4]
    np.save(sys.argv[3], llm.logits(np.load(sys.argv[2])["tokens"][:128].tolist()))
"""


@pytest.mark.parametrize("isa", machine()["sets"])
def test_every_set_gives_the_bits_of_the_default_model(smollm2: Path, isa: str, tmp_path: Path) -> None:
    out, golden = tmp_path / "logits.npy", TEXTS / "text.npz"
    subprocess.run(
        [sys.executable, "-c", SCORE, smollm2, golden, out, isa], env={**os.environ, "WOOLLY_ISA": isa}, check=True
    )
    assert np.load(out).tobytes() == smollm2_logits(smollm2, "text")[:128].tobytes()
