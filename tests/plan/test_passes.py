"""Passes: one changes numbers, all others keep every bit and leave a graph that the grammar accepts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.native.sketch import Sketch
from tests.tiny import ALL_BIASES, FAMILIES, tiny
from woolly import gguf
from woolly.device.cpu import TARGET
from woolly.model import Graph, build, check, run_reference
from woolly.plan import PASSES, optimise
from woolly.plan.passes import quantize_inputs

TOKENS = list(range(3, 40))
PRODUCTS = ("linear", "gate_up", "gate_up_quantize")


def ops(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pass_keeps_every_bit(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", family, "Q4_1")) as file:
        graph = quantize_inputs(build(file), "f16")
        expected = run_reference(graph, file, TOKENS)
        for name, rewrite in PASSES.items():
            graph = check(rewrite(graph), after=name)
            assert run_reference(graph, file, TOKENS).tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("family", FAMILIES)
def test_of_the_last_layer_only_what_others_see_is_computed_for_every_row(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", family)) as file:
        graph = optimise(build(file), TARGET)
    last = f"blk.{graph.meta.layers - 1}."
    tensors = {
        name.tensor.removeprefix(last)
        for node in graph.nodes
        if node.op in PRODUCTS and node.rows == "rows"
        for name in graph.weights[node.inputs[1]].rows
        if name.tensor.startswith(last)
    }
    assert tensors == {f"attn_{name}.weight" for name in "qkv"}


def test_only_products_with_quantised_weights_take_int8(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", format="Q4_0", formats={"ffn_down": "F16"})) as file:
        graph = quantize_inputs(build(file), "f16")
    widths = {node.inputs[1]: graph.weights[node.inputs[1]].format for node in graph.nodes if node.op == "linear"}
    records = {node.name for node in graph.nodes if node.op == "quantize"}
    taken = {node.inputs[1]: node.inputs[0] in records for node in graph.nodes if node.op == "linear"}
    assert taken == {name: format != "F16" for name, format in widths.items()}
    assert {state.dtype for state in graph.states.values()} == {"f16"}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_cache_keeps_is_computed_from_sixteen_bits_and_nothing_else(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", family)) as file:
        graph = quantize_inputs(build(file), "f16")
    wide = {node.name for node in graph.nodes if node.op == "quantize" and node.attrs["bits"] == 16}
    taken = {node.inputs[1] for node in graph.nodes if node.op == "linear" and node.inputs[0] in wide}
    layers = range(graph.meta.layers)
    assert taken == {f"blk.{i}.attn_{name}.weight" for i in layers for name in ("k", "v")}


@pytest.mark.parametrize("family", FAMILIES)
def test_an_exact_graph_has_no_record_of_eight_bits(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", family)) as file:
        graph = optimise(build(file), TARGET, kv="f32", exact=True)
    assert {node.dtype for node in graph.nodes if "quantize" in node.op} == {"q16"}
    assert ops(graph)["gate_up_quantize"] == graph.meta.layers  # fused as ever


def test_one_input_is_quantised_once_a_width(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        graph = quantize_inputs(build(file), "f16")
    # per layer: for q, for k and v, the attention's result, what gate and up share, their product; then the head
    assert ops(graph)["quantize"] == 2 * 5 + 1


def test_a_layer_becomes_eleven_instructions(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        before, after = build(file), optimise(build(file), TARGET)
    assert ops(after) == {
        "embed": 1, "norm_quantize": 6, "linear": 9, "slice": 4, "rope": 4, "store_attend": 2, "quantize": 3,
        "gate_up_quantize": 2, "take": 2, "rms_norm": 1,
    }  # fmt: skip
    assert len(after.nodes) < len(before.nodes)
    names = {part.tensor for weight in after.weights.values() for part in weight.rows}
    assert names == set(before.weights)


def test_gate_and_up_of_experts_become_one_product() -> None:
    s = Sketch(96)
    graph = optimise(s.graph(s.expert_layer(64, 32, "Q8_0", experts=6, count=2)), TARGET)
    assert ops(graph)["expert_gate_up_quantize"] == 1 and ops(graph)["expert_linear"] == 1
    [both] = [weight for weight in graph.weights.values() if weight.alternate]
    assert both.shape == (6, 64, 64) and [part.count for part in both.parts] == [32, 32]


@pytest.mark.parametrize("other", ["ids", "format", "use"])
def test_gate_and_up_of_other_experts_stay_apart(other: str) -> None:
    s = Sketch(96)
    x, scores = s.rows(64), s.rows(6)
    first = s.node("top_experts", scores, count=2, groups=1, groups_used=1)
    second = s.node("top_experts", s.rows(6), count=2, groups=1, groups_used=1) if other == "ids" else first
    gate = s.node("expert_linear", x, s.experts(6, 32, 64, "Q4_0" if other == "format" else "Q8_0"), first)
    up = s.node("expert_linear", x, s.experts(6, 32, 64, "Q8_0"), second)
    y = s.node("mul", s.node("silu", gate), up)
    y = s.node("add", y, up) if other == "use" else y
    assert ops(optimise(s.graph(y), TARGET))["expert_linear"] == 2


def test_biases_and_residuals_go_into_the_products(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", layer=ALL_BIASES)) as file:
        graph = optimise(build(file), TARGET)
    assert not {"add", "add_bias"} & set(ops(graph))
    with gguf.open(tiny(tmp_path / "granite.gguf", "granite")) as file:
        graph = optimise(build(file), TARGET)
    assert ops(graph)["scale"] == 1 and ops(graph)["divide"] == 1  # the embedding's and the logits'


def test_a_norm_that_is_read_twice_is_not_fused_away(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", format="Q4_0", formats={"attn_v": "F16"})) as file:
        graph = optimise(build(file), TARGET)
        expected = run_reference(quantize_inputs(build(file), "f16"), file, TOKENS)
        assert run_reference(graph, file, TOKENS).tobytes() == expected.tobytes()
    assert ops(graph)["rms_norm"] == 3 and ops(graph)["norm_quantize"] == 2 and ops(graph)["quantize"] == 7


def test_weights_of_another_type_stay_apart(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", format="Q4_K", formats={"attn_v": "Q6_K"})) as file:
        graph = optimise(build(file), TARGET)
    assert {"blk.0.attn_k.weight", "blk.0.attn_v.weight"} < set(graph.weights)
    with gguf.open(tiny(tmp_path / "model.gguf", format="Q4_K")) as file:
        graph = optimise(build(file), TARGET)
    assert "blk.0.attn_k.weight+blk.0.attn_v.weight" in graph.weights


def test_the_error_of_eight_bits_is_small_and_not_zero(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", format="Q8_0")) as file:
        truth = run_reference(build(file), file, TOKENS)
        planned = run_reference(optimise(build(file), TARGET, kv="f32"), file, TOKENS)
        exact = run_reference(optimise(build(file), TARGET, kv="f32", exact=True), file, TOKENS)
    error, least = (float(np.sum((logits - truth) ** 2) / np.sum(truth**2)) for logits in (planned, exact))
    assert 0 < error < 1e-2
    assert 0 < least < error / 30_000  # 256 times as fine, in squares
