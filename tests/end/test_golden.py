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
from woolly.device.cpu import machine
from woolly.gguf.tensor_types import FORMATS

TEXTS = DATA / "smollm2"
EXACT_MODE = 1e-8  # the largest NMSE of 16-bit activations


def logsumexp(logits: Logits) -> NDArray[np.float64]:
    """Of each row, which fits a cache: all of them as float64 take a gigabyte."""
    most = logits.max(-1).astype(np.float64)
    return most + np.log([np.exp(row - m).sum() for row, m in zip(logits, most, strict=True)])


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
    scores = logits[np.arange(len(tokens) - 1), tokens[1:]] - logsumexp(logits[:-1])
    return float(-scores.mean())


@pytest.mark.parametrize("name", ["text", "long"])
def test_the_default_model_reads_a_text_as_likely_as_the_reference(smollm2: Path, name: str) -> None:
    tokens = np.load(TEXTS / f"{name}.npz")["tokens"]
    reference = json.loads((TEXTS / f"{name}.json").read_text())["reference"]["nll"]
    assert abs(negative_log_likelihood(smollm2_logits(smollm2, name), tokens) - reference) <= 0.015


@pytest.mark.parametrize(("exact", "most"), [(False, 0.0029), (True, 1e-6)], ids=["normal", "exact"])
def test_the_default_model_is_close_to_the_reference_on_a_text(smollm2: Path, exact: bool, most: float) -> None:
    golden = np.load(TEXTS / "text.npz")
    a = golden["top_logits"].astype(np.float64) - golden["logsumexp"][:, None]
    logits = smollm2_logits(smollm2, "text", exact)
    b = np.take_along_axis(logits, golden["top_ids"], -1) - logsumexp(logits)[:, None]
    p = np.exp(a)
    rest, rest_here = (np.clip(1.0 - np.exp(x).sum(-1), 1e-12, None) for x in (a, b))
    divergence = (p * (a - b)).sum(-1) + rest * (np.log(rest) - np.log(rest_here))
    assert divergence.mean() <= most


def test_the_default_model_says_what_the_reference_is_sure_of(smollm2: Path) -> None:
    sure = 0
    with LLM(smollm2, context=2048) as llm:
        for chat in json.loads((TEXTS / "chat.json").read_text())["cases"]:
            ids, answer = chat["prompt_ids"], chat["greedy_ids"]
            best = llm.logits(ids + answer)[len(ids) - 1 : -1].argmax(-1)
            for token, expected, margin in zip(best, answer, chat["margin"], strict=True):
                assert token == expected or margin < 0.5, (chat["messages"], margin)
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
    np.save(sys.argv[3], llm.logits(np.load(sys.argv[2])["tokens"][:int(sys.argv[5])].tolist()))
"""


@pytest.mark.parametrize("isa", machine()["sets"])
def test_every_set_gives_the_bits_of_the_default_model(smollm2: Path, isa: str, tmp_path: Path) -> None:
    out, golden, count = tmp_path / "logits.npy", TEXTS / "text.npz", 20 if isa == "scalar" else 128  # 12 a second
    subprocess.run(
        [sys.executable, "-c", SCORE, smollm2, golden, out, isa, str(count)],
        env={**os.environ, "WOOLLY_ISA": isa},
        check=True,
    )
    assert np.load(out).tobytes() == smollm2_logits(smollm2, "text")[:count].tobytes()
