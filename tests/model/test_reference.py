"""The reference executor: joined weights, fused ops, and what it keeps between calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.tiny import tiny
from woolly import gguf
from woolly.gguf.tensor_types import FORMATS
from woolly.model import Graph, Node, Reference, Weight, build, check, run_reference

TOKENS = np.random.default_rng(3).integers(0, 288, 9).astype(np.int32)


def quantised(graph: Graph) -> Graph:
    """The graph with int8 inputs before every product with quantised weights."""
    nodes: list[Node] = []
    records: set[str] = set()
    width = {node.name: node.width for node in graph.nodes}
    for node in graph.nodes:
        if node.op == "linear" and not FORMATS[graph.weights[node.inputs[1]].format].is_float:
            x = node.inputs[0]
            if x not in records:
                nodes.append(Node(f"{x}.q8", "quantize", (x,), {"bits": 8}, node.rows, width[x], "q8"))
                records.add(x)
            node = replace(node, inputs=(f"{x}.q8", *node.inputs[1:]))
        nodes.append(node)
    return check(replace(graph, nodes=tuple(nodes)))


def joined(graph: Graph) -> Graph:
    """The graph with one product for q, k and v, and one fused op for gate and up."""
    weights, nodes = dict(graph.weights), list(graph.nodes)
    for i in range(graph.meta.layers):
        at = {node.name: number for number, node in enumerate(nodes)}
        q, k, v = (nodes[at[f"blk.{i}.{name}"]] for name in ("attn_q", "attn_k", "attn_v"))
        parts = tuple(node.inputs[1] for node in (q, k, v))
        width = q.width + k.width + v.width
        old = [weights.pop(name) for name in parts]
        rows = tuple(part for weight in old for part in weight.rows)
        weights[f"qkv.{i}"] = Weight(f"qkv.{i}", (width, old[0].shape[1]), old[0].format, rows)
        both = replace(q, name=f"qkv.{i}.product", inputs=(q.inputs[0], f"qkv.{i}", "", ""), width=width)
        first, cuts = 0, []
        for node in (q, k, v):
            cuts.append(replace(node, op="slice", inputs=(both.name,), attrs={"first": first, "count": node.width}))
            first += node.width
        nodes[at[q.name] : at[v.name] + 1] = [both, *cuts]

        at = {node.name: number for number, node in enumerate(nodes)}
        gate, up, mul = (nodes[at[f"blk.{i}.{name}"]] for name in ("ffn_gate", "ffn_up", "mul"))
        parts = (gate.inputs[1], up.inputs[1])
        old = [weights.pop(name) for name in parts]
        rows = tuple(part for weight in old for part in weight.rows)
        weights[f"gu.{i}"] = Weight(f"gu.{i}", (2 * gate.width, old[0].shape[1]), old[0].format, rows, alternate=True)
        fused = replace(mul, op="gate_up", inputs=(gate.inputs[0], f"gu.{i}"), attrs={"act": 0})
        nodes[at[gate.name] : at[mul.name] + 1] = [fused]
    return check(replace(graph, nodes=tuple(nodes), weights=weights))


@pytest.mark.parametrize("format", FORMATS)
def test_joining_weights_and_fusing_ops_keeps_the_bytes(tmp_path, format):
    with gguf.open(tiny(tmp_path / "a.gguf", format=format, layers=1)) as file:
        graph = quantised(build(file))
        assert np.array_equal(run_reference(joined(graph), file, TOKENS), run_reference(graph, file, TOKENS))


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q8_0", "Q2_K", "Q6_K"])
def test_int8_inputs_change_the_logits_a_little(tmp_path, format):
    with gguf.open(tiny(tmp_path / "a.gguf", format=format)) as file:
        graph = build(file)
        truth, engine = (run_reference(g, file, TOKENS).astype(np.float64) for g in (graph, quantised(graph)))
    assert 1e-7 < ((engine - truth) ** 2).sum() / (truth**2).sum() < 5e-3


def test_caches_belong_to_their_ids_until_they_are_forgotten(tmp_path):
    with gguf.open(tiny(tmp_path / "a.gguf")) as file:
        reference = Reference(build(file), file)
        in_one_step = reference.run(TOKENS, [[0, 9, 0]], [8], ids=["a"])
        again = reference.run(TOKENS[8:], [[0, 1, 8]], [0], ids=["a"])
        assert np.array_equal(again, in_one_step)
        with pytest.raises(ValueError, match="position 8 is written, but only 0"):
            reference.run(TOKENS[8:], [[0, 1, 8]], [0], ids=["b"])
        reference.forget("a")
        with pytest.raises(ValueError, match="position 8 is written, but only 0"):
            reference.run(TOKENS[8:], [[0, 1, 8]], [0], ids=["a"])


def test_a_position_may_be_computed_again_with_another_token(tmp_path):
    with gguf.open(tiny(tmp_path / "a.gguf")) as file:
        reference = Reference(build(file), file)
        reference.run(TOKENS, [[0, 9, 0]], [8])
        other = TOKENS[::-1].copy()
        other[:4] = TOKENS[:4]
        got = reference.run(other[4:], [[0, 5, 4]], [4])
        assert np.array_equal(got[0], run_reference(reference.graph, file, other)[8])


def test_rows_without_a_span_and_tokens_outside_the_vocabulary_are_refused(tmp_path):
    with gguf.open(tiny(tmp_path / "a.gguf")) as file:
        reference = Reference(build(file), file)
        with pytest.raises(ValueError, match="do not cover all rows"):
            reference.run(TOKENS, [[0, 8, 0]], [0])
        for token in (-1, 288):
            with pytest.raises(ValueError, match="token ids are 0 to 287"):
                reference.run([token], [[0, 1, 0]], [0])
