"""Families: golden logits, and the promises every family keeps on small random models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.families import FAMILY_CASES
from tests.golden import CASES, EXACT, every_case, nmse
from tests.tiny import ALL_BIASES, FAMILIES, tiny
from woolly import gguf
from woolly.errors import FileError, UnsupportedError
from woolly.model import EXACT as FAST
from woolly.model import OPS, Graph, Reference, build, run_reference


@every_case
def test_the_reference_gives_the_golden_logits(case):
    tokens = case.tokens
    many = np.arange(len(tokens))
    with gguf.open(case.file) as file:
        ops = OPS if case in CASES[::10] else FAST  # slow; the core is compared with it op by op and model by model
        reference = Reference(build(file, case.context), file, ops=ops)
        assert case.error(reference.run(tokens, [[0, len(tokens), 0]], many)) <= EXACT


# Small random models of every family in the table.

TOKENS = np.random.default_rng(11).integers(0, 288, 21).astype(np.int32)


@pytest.fixture(params=list(FAMILIES))
def model(request, tmp_path) -> tuple[Graph, gguf.GgufFile]:
    with gguf.open(tiny(tmp_path / "a.gguf", request.param, "Q4_0")) as file:
        yield build(file), file


def with_cache(graph: Graph, dtype: str) -> Graph:
    return replace(graph, states={name: replace(state, dtype=dtype) for name, state in graph.states.items()})


def test_a_family_has_one_cache_per_layer_and_its_name_in_the_graph(model):
    graph, file = model
    assert list(graph.states) == [f"cache.{i}" for i in range(graph.meta.layers)]
    assert graph.meta.architecture == file.meta["general.architecture"]


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8"])
def test_a_prompt_in_chunks_gives_the_same_bits(model, dtype):
    graph, file = model
    graph = with_cache(graph, dtype)
    in_one_step = run_reference(graph, file, TOKENS)
    assert np.isfinite(in_one_step).all() and in_one_step.std() > 0.1
    reference, rows = Reference(graph, file), []
    for first, last in ((0, 1), (1, 9), (9, 20), (20, 21)):
        count = last - first
        rows.append(reference.run(TOKENS[first:last], [[0, count, first]], np.arange(count)))
    assert np.array_equal(np.concatenate(rows), in_one_step)


def test_a_sequence_in_a_batch_gives_the_bits_it_gives_alone(model):
    graph, file = model
    alone = run_reference(graph, file, TOKENS)
    reference = Reference(graph, file)
    reference.run(TOKENS[:8], [[0, 8, 0]], [7], ids=["b"])
    tokens = np.concatenate([TOKENS[:5], TOKENS[8:], TOKENS])
    spans = [[0, 5, 0], [5, 13, 8], [18, 21, 0]]
    got = reference.run(tokens, spans, [17, 4, 18, 38], ids=["a", "b", "c"])
    assert np.array_equal(got, alone[[20, 4, 0, 20]])


def test_switches_of_the_files_change_the_result(tmp_path):
    """A switch that is read and then forgotten would give the plain model's logits."""

    def logits(family: str, name: str, **overrides: Any) -> np.ndarray:
        with gguf.open(tiny(tmp_path / f"{name}.gguf", family, "F32", **overrides)) as file:
            return run_reference(build(file), file, TOKENS)

    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
    plain = {
        "llama": logits("llama", "llama"),
        "granite": logits("granite", "granite", family_keys={}),
        "mistral3": logits("mistral3", "mistral3", family_keys=yarn),
    }
    changed = [
        ("llama", {"layer": ALL_BIASES}),
        ("llama", {"layer": {"ffn_down.bias": ("width",)}}),
        ("llama", {"file": {"rope_freqs.weight": ("angles",)}}),
        ("llama", {"rope_dim": 8}),
        ("llama", {"tied": False}),
        ("llama", {"family_keys": yarn}),
        ("llama", {"family_keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}}),
        ("granite", {"family_keys": {"embedding_scale": 12.0}}),
        ("granite", {"family_keys": {"residual_scale": 0.22}}),
        ("granite", {"family_keys": {"attention.scale": 0.0625}}),
        ("granite", {"family_keys": {"logit_scale": 4.0}}),
        ("mistral3", {"family_keys": {**yarn, "attention.temperature_scale": 0.1}}),
        ("mistral3", {"family_keys": {**yarn, "rope.scaling.yarn_log_multiplier": 1.0}}),
    ]
    for number, (family, overrides) in enumerate(changed):
        assert nmse(logits(family, f"{number}", **overrides), plain[family]) > 1e-4, overrides


def test_a_scale_of_zero_means_absent(tmp_path):
    none = tiny(tmp_path / "none.gguf", "granite", "F32", family_keys={})
    keys = ("embedding_scale", "residual_scale", "attention.scale", "logit_scale")
    zero = tiny(tmp_path / "zero.gguf", "granite", "F32", family_keys=dict.fromkeys(keys, 0.0))
    with gguf.open(none) as a, gguf.open(zero) as b:
        assert build(a) == build(b)


def test_heads_may_be_given_per_layer_when_all_are_equal(tmp_path):
    once = tiny(tmp_path / "once.gguf")
    each = {"llama.attention.head_count": np.array([4, 4]), "llama.attention.head_count_kv": np.array([2, 2])}
    with gguf.open(once) as a, gguf.open(tiny(tmp_path / "each.gguf", meta=each)) as b:
        assert build(a) == build(b)


# What is refused, and by which name.


def rewrite(source: Path, target: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a file with its tensors changed."""
    with gguf.open(source) as file:
        tensors = {name: (t.format, t.shape, bytes(file.data(name))) for name, t in file.tensors.items()}
        change(tensors)
        return gguf.write(target, dict(file.meta), tensors)


def test_every_tensor_of_every_family_is_missed_by_name(model, tmp_path):
    _, file = model
    names = {name for name in file.tensors if name.startswith(("blk.0.", "blk.4.", "token", "output"))}
    for name in names:
        path = rewrite(file.path, tmp_path / "less.gguf", lambda tensors, name=name: tensors.pop(name))
        with gguf.open(path) as less, pytest.raises(FileError, match=f"tensor {name} is missing") as error:
            build(less)
        assert error.value.facts["tensor"] == name


@pytest.mark.parametrize("name", ["blk.0.attn_sinks.weight", "blk.7.attn_q.weight", "surprise", "output.bias"])
def test_a_tensor_that_the_graph_did_not_take_is_refused_by_name(model, tmp_path, name):
    _, file = model
    extra = ("F32", (64,), np.ones(64, np.float32).tobytes())
    path = rewrite(file.path, tmp_path / "more.gguf", lambda tensors: tensors.update({name: extra}))
    with gguf.open(path) as more, pytest.raises(FileError, match=f"tensor {name} is no part of a"):
        build(more)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("blk.1.attn_k.weight", (16, 64), "blk.1.attn_k.weight is 16 x 64, but 32 x 64 is expected"),
        ("blk.0.ffn_down.weight", (64, 32), "blk.0.ffn_down.weight is 64 x 32, but 64 x 64 is expected"),
        ("output_norm.weight", (32,), "output_norm.weight is 32, but 64 is expected"),
        ("blk.0.attn_q.weight", (2, 32, 64), "blk.0.attn_q.weight is 2 x 32 x 64, but 64 x 64 is expected"),
    ],
)
def test_a_wrong_shape_is_refused_with_both_shapes(tmp_path, name, shape, message):
    data = ("F32", shape, bytes(4 * int(np.prod(shape))))
    path = rewrite(tiny(tmp_path / "a.gguf"), tmp_path / "b.gguf", lambda tensors: tensors.update({name: data}))
    with gguf.open(path) as file, pytest.raises(FileError, match=message):
        build(file)


def test_a_quantised_norm_is_refused_by_name(tmp_path):
    data = ("Q8_0", (64,), bytes(68))
    change = {"output_norm.weight": data}
    path = rewrite(tiny(tmp_path / "a.gguf"), tmp_path / "b.gguf", lambda tensors: tensors.update(change))
    with gguf.open(path) as file, pytest.raises(UnsupportedError, match=r"output_norm.weight is a vector of type Q8_0"):
        build(file)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_rope_factor_that_cannot_divide_is_refused(tmp_path, value):
    factors = np.ones(8, np.float32)
    factors[3] = value
    change = {"rope_freqs.weight": ("F32", (8,), factors.tobytes())}
    path = rewrite(tiny(tmp_path / "a.gguf"), tmp_path / "b.gguf", lambda tensors: tensors.update(change))
    with gguf.open(path) as file, pytest.raises(FileError, match=r"rope_freqs.weight has a factor"):
        build(file)


def test_experts_that_are_no_matrices_are_refused_by_name(tmp_path):
    case = next(case for case in FAMILY_CASES if case.name == "mixtral")
    tensors = {**case.tensors, "blk.0.ffn_up_exps.weight": [8]}
    path = replace(case, tensors=tensors).write(tmp_path / "a.gguf")
    with gguf.open(path) as file, pytest.raises(FileError, match=r"ffn_up_exps.weight is 8, but a matrix is expected"):
        build(file)


@pytest.mark.parametrize("name", ["notallama", "", "../llama", "__class__", "Llama"])
def test_an_unknown_architecture_is_refused_by_name_and_points_to_nothing_that_a_package_lacks(tmp_path, name):
    path = tiny(tmp_path / "a.gguf", meta={"general.architecture": name})
    with gguf.open(path) as file, pytest.raises(UnsupportedError, match="is not supported") as error:
        build(file)
    assert f"architecture '{name}'" in str(error.value)
    assert "a newer Woolly" in error.value.suggestion and "README" not in str(error.value)


@pytest.mark.parametrize(
    "meta", [{"general.architecture": "clip"}, {"general.type": "mmproj"}, {"general.architecture": "clip", "x": [1]}]
)
def test_the_half_of_a_model_that_sees_is_told_as_such(tmp_path, meta):
    with gguf.open(tiny(tmp_path / "mmproj-a.gguf", meta=meta)) as file, pytest.raises(UnsupportedError) as error:
        build(file)
    assert "sees or hears (mmproj)" in str(error.value) and "the other file" in error.value.suggestion


def test_a_file_that_is_no_model_is_refused(tmp_path):
    for meta, kind, message in (
        ({"general.architecture": None}, FileError, r"general.architecture is missing"),
        ({"general.architecture": 7}, FileError, r"general.architecture is 7, but a text is expected"),
        ({"general.type": "adapter"}, UnsupportedError, r"of type adapter, not a model"),
        ({"general.type": [1, 2]}, UnsupportedError, r"of type .*, not a model"),
    ):
        with gguf.open(tiny(tmp_path / "a.gguf", meta=meta)) as file, pytest.raises(kind, match=message):
            build(file)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("gemma4", "gemma4.attention.shared_kv_layers", 5, "layer 1 has no keys"),
        ("glm4_mrope", "glm4.rope.dimension_sections", ["a", "b", "c"], "three or four sizes of sections"),
        ("bloom", "bloom.attention.head_count", [0, 4], "bloom.attention.head_count is 0"),
        ("step35", "step35.rope.dimension_count", 6, "a multiple of 4"),
    ],
)
def test_keys_of_a_family_are_checked_before_they_are_used(tmp_path, name, key, value, message):
    case = next(case for case in FAMILY_CASES if case.name == name)
    path = replace(case, keys={**case.keys, key: value}).write(tmp_path / "a.gguf")
    with gguf.open(path) as file, pytest.raises(FileError, match=message):
        build(file)
