"""The card: what a file says about itself, from its header alone, the same for everybody who asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.families import FAMILY_CASES
from tests.tiny import FAMILIES, tiny
from woolly import gguf, model
from woolly.examine import Abilities, Card, abilities, check, read_card

SIZES = ("architecture", "layers", "width", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context")
THINKER = "{{ messages[0]['content'] }}{% if enable_thinking %} think {% endif %}"


def card(path: Path) -> Card:
    with gguf.open(path) as file:
        return read_card(file)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sizes_of_a_card_are_those_of_the_graph(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "t.gguf", family, heads=8, kv_heads=2, ffn=192, width=128)) as file:
        read, meta = read_card(file), model.build(file).meta
    sizes = [getattr(meta, name) for name in SIZES]
    assert [getattr(read, name) for name in SIZES] == [n[0] if isinstance(n, tuple) else n for n in sizes]


def test_layers_that_predict_several_tokens_are_counted_apart(tmp_path: Path) -> None:
    case = next(case for case in FAMILY_CASES if case.name == "glm4moe")
    read = card(case.write(tmp_path / "t.gguf", words=True))
    assert (read.layers, read.drafts) == (3, 1)


def test_sizes_told_for_each_layer_and_left_out_are_found(tmp_path: Path) -> None:
    meta = {
        "llama.attention.head_count": np.array([4, 4], np.int32),
        "llama.attention.head_count_kv": None,
        "llama.attention.key_length": None,
    }
    read = card(tiny(tmp_path / "t.gguf", heads=4, kv_heads=4, meta=meta))
    assert (read.heads, read.kv_heads, read.head_dim) == (4, 4, 16)


def test_a_file_that_cannot_be_run_has_a_card_with_what_it_tells(tmp_path: Path) -> None:
    meta = {"general.architecture": "another", "general.name": 7, "tokenizer.ggml.tokens": ["a", "b", "c"]}
    read = card(gguf.write(tmp_path / "words.gguf", meta, []))
    assert (read.name, read.architecture, read.vocab) == ("words", "another", 3)
    assert (read.layers, read.context, read.parameters, read.quantization) == (0, 0, 0, "")
    assert (read.chat, read.style, read.licence) == (False, "", "")
    assert (read.sampling, read.template) == ({}, None)


def test_the_type_of_a_model_is_that_of_most_of_its_bytes(tmp_path: Path) -> None:
    read = card(tiny(tmp_path / "t.gguf", format="Q4_0", formats={"token_embd": "F16"}, vocab=4096, width=128))
    assert read.quantization == "F16"
    assert read.types["Q4_0"] > read.types["F16"]


def test_the_sampling_of_a_file_has_the_names_of_the_library(tmp_path: Path) -> None:
    meta = {f"general.sampling.{key}": value for key, value in (("temp", 0.5), ("top_k", 20), ("penalty_repeat", 1.5))}
    assert card(tiny(tmp_path / "t.gguf", meta=meta)).sampling == {
        "temperature": 0.5,
        "top_k": 20,
        "repetition_penalty": 1.5,
    }


@pytest.mark.parametrize(("template", "switch"), [(THINKER, True), ("{{ messages[0]['content'] }}", False)])
def test_a_template_that_can_be_told_to_think_is_known_by_it(template: str, switch: bool, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "t.gguf", meta={"tokenizer.chat_template": template})) as file:
        template = check(file).template
    assert template is not None
    assert abilities(template) == Abilities(system=True, thinking=switch)


@pytest.mark.parametrize(("template", "style"), [("{{ '[TOOL_CALLS]' }}", "mistral_json"), ("<tool_call>", "hermes")])
def test_the_style_of_the_answers_is_found_in_the_template(template: str, style: str, tmp_path: Path) -> None:
    assert card(tiny(tmp_path / "t.gguf", meta={"tokenizer.chat_template": template})).style == style
