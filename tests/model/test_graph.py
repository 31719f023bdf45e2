"""The grammar: a graph that says something impossible does not pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tiny import tiny
from woolly import gguf
from woolly.model import Graph, Node, State, Weight, build, check


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Graph:
    path = tiny(tmp_path_factory.mktemp("graph") / "a.gguf", "mistral3", "Q8_0", layer={"attn_q.bias": ("q",)})
    with gguf.open(path) as file:
        return build(file)


def swap(graph: Graph, which: str, **changes: object) -> Graph:
    """The graph with one node changed."""
    assert any(node.name == which for node in graph.nodes)
    nodes = tuple(replace(node, **changes) if node.name == which else node for node in graph.nodes)
    return replace(graph, nodes=nodes)


def test_a_built_graph_is_grammatical_and_stays_so_when_copied(graph):
    assert check(graph) is graph
    copy = replace(graph, nodes=tuple(replace(node) for node in graph.nodes))
    assert check(copy) == graph


def test_a_built_graph_uses_plain_ops_only(graph):
    plain = {
        "embed",
        "scale",
        "rms_norm",
        "linear",
        "add_bias",
        "add",
        "mul",
        "silu",
        "rope",
        "scale_by_position",
        "store",
        "attend",
    }
    assert {node.op for node in graph.nodes} <= plain | {"take", "divide"}
    for node in graph.nodes:
        if node.op == "linear":
            assert node.inputs[2:] == ("", "") and node.attrs == {"scale": 1.0}


def test_nodes_can_be_found_by_the_names_of_their_weights(graph):
    names = [node.name for node in graph.nodes]
    for name in (
        "token_embd",
        "blk.0.attn_q",
        "blk.0.attn_q.add_bias.rope.scale_by_position",
        "blk.1.ffn_down",
        "output_norm",
    ):
        assert name in names


def test_states_may_be_given_a_type(graph):
    states = {name: replace(state, dtype="q8") for name, state in graph.states.items()}
    assert check(replace(graph, states=states)).states["cache.0"] == State("cache.0", (2, 16), dtype="q8")


def test_a_quantize_node_may_stand_before_a_product(graph):
    at = next(i for i, node in enumerate(graph.nodes) if node.name == "blk.0.attn_q")
    quantize = Node("q8", "quantize", ("blk.0.attn_norm",), {"bits": 8}, "rows", 64, "q8")
    graph = swap(graph, "blk.0.attn_q", inputs=("q8", "blk.0.attn_q.weight", "", ""))
    check(replace(graph, nodes=(*graph.nodes[:at], quantize, *graph.nodes[at:])))


BROKEN = {
    "an unknown op": ("blk.0.add", {"op": "subtract"}, "there is no op 'subtract'"),
    "an operand that is not there": (
        "blk.0.add",
        {"inputs": ("token_embd", "nothing")},
        "'nothing' does not come before",
    ),
    "an operand that comes later": ("blk.0.add", {"inputs": ("token_embd", "blk.1.add")}, "'blk.1.add' does not come"),
    "itself as operand": ("blk.0.add", {"inputs": ("token_embd", "blk.0.add")}, "'blk.0.add' does not come before"),
    "an operand too few": ("blk.0.add", {"inputs": ("token_embd",)}, "add takes 2 operands, not 1"),
    "an operand left out": ("blk.0.add", {"inputs": ("token_embd", "")}, "takes f32 as y, not nothing"),
    "a weight for a value": (
        "blk.0.add",
        {"inputs": ("token_embd", "output_norm.weight")},
        "takes f32 as y, not vector",
    ),
    "a vector for a matrix": (
        "blk.0.ffn_up",
        {"inputs": ("blk.0.ffn_norm", "output_norm.weight", "", "")},
        "takes matrix as w, not vector",
    ),
    "tokens for positions": (
        "blk.0.attn_k.rope",
        {"inputs": ("blk.0.attn_k", "tokens", "rope")},
        "takes positions as positions, not tokens",
    ),
    "another width": ("blk.0.add", {"width": 63}, "its op gives"),
    "another type": ("blk.0.add", {"dtype": "q8"}, "its op gives"),
    "rows of logits": ("blk.0.add", {"rows": "wants"}, "its op gives"),
    "an attribute too few": ("blk.0.ffn_norm", {"attrs": {"eps": 1e-5}}, "has the attributes"),
    "an attribute too many": ("blk.0.add", {"attrs": {"by": 1.0}}, "has the attributes"),
    "an attribute of another type": ("blk.0.ffn_norm", {"attrs": {"eps": 1, "heads": 1}}, "eps must be float"),
    "heads that do not divide": ("blk.0.ffn_norm", {"attrs": {"eps": 1e-5, "heads": 3}}, "blk.0.ffn_norm"),
    "the table of another op": (
        "blk.0.attn_k.rope",
        {"inputs": ("blk.0.attn_k", "positions", "temperature")},
        "the table is 1 wide",
    ),
    "the cache of another layer": (
        "blk.1.attend",
        {"inputs": ("blk.1.attn_q.add_bias.rope.scale_by_position", "cache.1", "spans", "blk.0.store", "", "")},
        "blk.0.store does not store into cache.1",
    ),
    "a second take": ("take", {"inputs": ("take", "want")}, "'take' does not come before"),
    "a name that is taken": ("blk.0.add", {"name": "token_embd"}, "two operands are called 'token_embd'"),
    "no name": ("blk.0.add", {"name": ""}, "two operands are called ''"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_node_with_something_wrong_is_refused(graph, what):
    name, changes, message = BROKEN[what]
    with pytest.raises(ValueError, match=message) as error:
        check(swap(graph, name, **changes), after="test")
    assert str(error.value).startswith("after test: ")


def test_int8_inputs_of_float_weights_are_refused(graph):
    weights = {**graph.weights, "blk.0.attn_q.weight": Weight("blk.0.attn_q.weight", (64, 64), "F16")}
    at = next(i for i, node in enumerate(graph.nodes) if node.name == "blk.0.attn_q")
    quantize = Node("q8", "quantize", ("blk.0.attn_norm",), {"bits": 8}, "rows", 64, "q8")
    graph = swap(graph, "blk.0.attn_q", inputs=("q8", "blk.0.attn_q.weight", "", ""))
    graph = replace(graph, weights=weights, nodes=(*graph.nodes[:at], quantize, *graph.nodes[at:]))
    with pytest.raises(ValueError, match="F16, which takes float32 inputs"):
        check(graph)


def test_an_output_that_is_no_row_of_logits_is_refused(graph):
    for output in ("blk.0.add", "output_norm", "nothing", "token_embd.weight"):
        with pytest.raises(ValueError, match="does not give logits"):
            check(replace(graph, outputs={"logits": output}))
    with pytest.raises(ValueError, match="no output"):
        check(replace(graph, outputs={}))


def test_a_state_of_an_unknown_type_is_refused(graph):
    states = {**graph.states, "cache.0": State("cache.0", (2, 16), dtype="q4")}
    with pytest.raises(ValueError, match=r"cache.0 has no type q4"):
        check(replace(graph, states=states))
