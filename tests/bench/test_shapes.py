"""bench.shapes and bench.random_model: random files are valid models of the shapes they claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.native.stepping import computed
from woolly import gguf, model
from woolly.bench import MIXES, SHAPES, random_model, read_shape, write_model
from woolly.bench.random_model import random_rows
from woolly.bench.shapes import Shape, format_of
from woolly.bench.subject import Subject
from woolly.errors import FileError, RequestError
from woolly.gguf.tensor_types import FORMATS
from woolly.text import Tokenizer


def reduced(name: str) -> Shape:
    """A shape with its own widths and heads, but few layers, so many that each kind is among them, small experts and a
    small vocabulary."""
    shape = SHAPES[name]
    layers = 6 if "attention.sliding_window" in shape.keys else 4 if len(shape.mixers) > 1 else 1
    shape = replace(shape, layers=layers, vocab=400, ffn=512 if shape.ffn else 0)
    if shape.experts is None:
        return shape
    few = replace(shape.experts, count=16, ffn=256)
    return replace(shape, layers=layers + few.after, experts=few)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_a_model_that_runs(tmp_path: Path, name: str) -> None:
    path = write_model(tmp_path / "m.gguf", name, reduced(name), MIXES["Q4_K_M"])
    subject = Subject(path, threads=1, positions=8)
    logits = computed(subject.runner, subject.prompt_step(8))
    assert logits is not None
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 10  # far from overflow, and not all alike
    with gguf.open(path) as file:
        assert Tokenizer(file.meta).decode(Tokenizer(file.meta).encode("Hello there, wörld")) == "Hello there, wörld"
    subject.close()


@pytest.mark.parametrize("mix", MIXES)
def test_every_mix_is_a_model_that_can_be_built(tmp_path: Path, mix: str) -> None:
    path = write_model(tmp_path / "m.gguf", mix, reduced("smollm2-360m"), MIXES[mix])
    with gguf.open(path) as file:
        graph = model.build(file)
        assert graph.meta.layers == 1
        assert file.tensors["blk.0.ffn_gate.weight"].shape == (512, 960)


@pytest.mark.parametrize("form", FORMATS)
def test_random_rows_have_mean_zero_and_the_wanted_deviation(form: str) -> None:
    raw = random_rows(form, 64, 1024, 0.02, np.random.default_rng(3))
    values = FORMATS[form].decode(raw, 1024)
    assert abs(values.mean()) < 0.002
    assert values.std() == pytest.approx(0.02, rel=0.1)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    shape, mix = reduced("smollm2-135m"), MIXES["Q4_0"]
    files = [write_model(tmp_path / f"{i}.gguf", "x", shape, mix, seed=i // 2) for i in range(3)]
    first, second, other = (path.read_bytes() for path in files)
    assert first == second
    assert first != other


def test_a_tensor_is_the_same_whatever_piece_it_is_made_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, mix = reduced("smollm2-135m"), MIXES["Q8_0"]
    sizes = []
    for piece in (1 << 10, 1 << 30):
        monkeypatch.setattr(random_model, "PIECE", piece)
        sizes.append(write_model(tmp_path / "m.gguf", "x", shape, mix).stat().st_size)
    assert sizes[0] == sizes[1]


def test_layers_that_count_most_have_more_bits() -> None:
    shape, mix = SHAPES["llama-3.2-1b"], MIXES["Q4_K_M"]
    sensitive = [i for i in range(16) if format_of(mix, "ffn_down", i, shape, 8192) == "Q6_K"]
    assert sensitive == [0, 1, 4, 7, 10, 13, 14, 15]
    assert {format_of(mix, "ffn_gate", i, shape, 2048) for i in range(16)} == {"Q4_K"}
    assert format_of(mix, "embed", 0, shape, 2048) == "Q6_K"


def test_a_row_that_is_not_whole_super_blocks_has_a_small_block_type() -> None:
    shape = SHAPES["smollm2-135m"]
    assert format_of(MIXES["Q4_K_M"], "attn_q", 5, shape, 576) == "Q5_0"
    assert format_of(MIXES["Q4_K_M"], "embed", 0, shape, 576) == "Q8_0"


def test_an_own_head_has_its_type_and_the_embedding_the_base() -> None:
    shape = SHAPES["llama-3.1-8b"]
    assert format_of(MIXES["Q4_K_M"], "embed", 0, shape, 4096) == "Q4_K"
    assert format_of(MIXES["Q4_K_M"], "head", 0, shape, 4096) == "Q6_K"


def test_a_shape_is_read_in_any_case() -> None:
    title, shape, mix = read_shape("Llama-3.2-1B:q4_k_m")
    assert (title, shape, mix) == ("llama-3.2-1b:Q4_K_M", SHAPES["llama-3.2-1b"], MIXES["Q4_K_M"])


def test_a_shape_may_have_fewer_layers() -> None:
    title, shape, _ = read_shape("Qwen3-0.6b:Q8_0@03")
    assert (title, shape) == ("qwen3-0.6b:Q8_0@3", replace(SHAPES["qwen3-0.6b"], layers=3))
    assert read_shape("qwen3-0.6b:Q8_0@28")[1] == SHAPES["qwen3-0.6b"]


@pytest.mark.parametrize("layers", ["", "0", "29", "-1", "1.5", "two", "²", "9" * 5000, "0000000039"])
def test_another_number_of_layers_is_refused_with_those_there_are(layers: str) -> None:
    with pytest.raises(RequestError, match=r"qwen3-0\.6b has 28 layers") as caught:
        read_shape(f"qwen3-0.6b:Q8_0@{layers}")
    assert len(str(caught.value)) < 300 and "qwen3-0.6b:Q8_0@7" in caught.value.suggestion


@pytest.mark.parametrize(
    ("word", "expected"),
    [("gpt-9:Q4_0", "there is no shape 'gpt-9'"), ("llama-3.2-1b", "Q4_K_M"), ("qwen3-0.6b:Q9", "Q9")],
)
def test_an_unknown_shape_or_mix_is_refused_with_the_known_ones(word: str, expected: str) -> None:
    with pytest.raises(RequestError, match=r"the shapes are|the mixes are") as caught:
        read_shape(word)
    assert expected in str(caught.value)


def test_a_full_disk_is_told_of_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_model.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(FileError) as caught:
        write_model(tmp_path / "m.gguf", "x", reduced("smollm2-135m"), MIXES["Q4_0"])
    assert caught.value.code == "disk_full"
    assert not (tmp_path / "m.gguf").exists()
