"""What publishers recommend, for files that carry no recommendation of their own."""

from __future__ import annotations

import pytest

from woolly.examine.recommended import TABLE, recommended
from woolly.model import FAMILIES
from woolly.request import SAMPLING, Sampling


def test_every_row_is_of_architectures_that_run_and_of_values_that_are_allowed() -> None:
    for row in TABLE:
        assert set(row.architectures.split()) <= FAMILIES.keys()
        assert row.values.keys() <= SAMPLING.keys()
        Sampling(**row.values)


@pytest.mark.parametrize(
    ("architecture", "name", "temperature"),
    [
        ("qwen3", "Qwen3 0.6B", 0.6),
        ("qwen3moe", "Qwen3-30B-A3B", 0.6),
        ("qwen3", "Qwen3-4B-Instruct-2507", 0.7),
        ("qwen2", "DeepSeek R1 Distill Qwen 1.5B", 0.6),
        ("gemma3", "Gemma 3 1b It", 1.0),
        ("llama", "Meta Llama 3.1 8B Instruct", 0.6),
        ("lfm2", "LFM2 1.2B", 0.3),
        ("granite", "Granite 4.0 1b", 0.0),
    ],
)
def test_a_known_model_is_recognised_by_its_name(architecture: str, name: str, temperature: float) -> None:
    assert recommended(architecture, name)["temperature"] == temperature


@pytest.mark.parametrize(
    ("architecture", "name"),
    [("llama", "SmolLM2 135M Instruct"), ("qwen3", "Qwen3-Embedding-0.6B"), ("qwen3", "My finetune"), ("gemma3", "")],
)
def test_nothing_is_recommended_for_a_model_that_the_table_does_not_know(architecture: str, name: str) -> None:
    assert recommended(architecture, name) == {}
