"""Layers with a window keep the pages of their window alone, and nobody can tell from the result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.families import FAMILY_CASES, FamilyCase
from woolly import LLM, gguf, model, plan
from woolly.device import Batch, cpu

COUNT, STEP = 3000, 256

every_windowed = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name)
        for case in FAMILY_CASES
        if case.name in ("gemma3", "gpt-oss", "cohere2", "mimo2")
    ],
)


@every_windowed
def test_a_long_prompt_has_the_bits_it_has_when_every_page_is_kept(case: FamilyCase, tmp_path: Path) -> None:
    path = case.write(tmp_path / "model.gguf")
    tokens = np.random.RandomState(5).randint(0, case.vocab, COUNT).astype(np.int32)
    with gguf.open(path) as file:
        graph = model.build(file, 3072)
        program = plan.plan(graph, cpu.TARGET, plan.Bounds(STEP, 1, 1, 3072), kv="f16")
        assert 0 in {group.window for group in program.groups} and len(program.groups) == 2
        runner = cpu.Runner(program, file, threads=2, pages=[48, 48])
    pages = np.tile(np.arange(48, dtype=np.int32), (2, 1, 1))
    expected = []
    for first in range(0, COUNT, STEP):
        some = tokens[first : first + STEP]
        spans, want = np.array([[0, len(some), first]], np.int32), np.array([len(some) - 1], np.int32)
        outputs = runner.run(runner.batch.put(Batch(some, spans, pages, want)))
        assert outputs is not None
        expected.append(outputs["logits"][0].copy())
    with LLM(path, tokenizer=False, context=3072, batch=STEP, sequences=1) as llm:
        windowed = next(group.window for group in program.groups if group.window)
        windowed_pages = (
            -(-(windowed + STEP) // 64) + 1
        )  # those of a step's rows, and one where the window begins inside a page
        assert llm.info.pool == sum(
            group.page_bytes * (windowed_pages if group.window else 48) for group in program.groups
        )  # what the arithmetic says, and not the pages of 3,072 positions
        logits = llm.logits(tokens.tolist())
    for number, row in enumerate(expected):
        at = min((number + 1) * STEP, COUNT) - 1
        assert logits[at].tobytes() == row.tobytes(), at


@every_windowed
def test_a_prompt_that_begins_with_a_remembered_one_goes_on_with_the_same_tokens(
    case: FamilyCase, tmp_path: Path
) -> None:
    """Whatever the windows have let go meanwhile, also where the shared beginning ends at a border of one."""
    path = case.write(tmp_path / "model.gguf")
    tokens = np.random.RandomState(6).randint(0, case.vocab, 400).tolist()
    prompts = [tokens[:cut] + tokens[50:90] for cut in (64, 128, 192, 200, 320)]

    def answers(llm: LLM, prompt: list[int]) -> tuple[list[int], int]:
        answer = llm.generate(prompt, max_tokens=12, temperature=0)
        return answer.tokens, answer.usage.cached_tokens

    fresh = []
    for prompt in prompts:
        with LLM(path, tokenizer=False, context=512) as llm:
            fresh.append(answers(llm, prompt)[0])
    with LLM(path, tokenizer=False, context=512) as llm:
        llm.generate(tokens, max_tokens=4, temperature=0)
        again = [answers(llm, prompt) for prompt in prompts]
    assert [answer for answer, _ in again] == fresh
    assert any(cached for _, cached in again)  # else nothing was shown
