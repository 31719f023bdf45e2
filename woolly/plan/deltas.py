"""What loaded adapters add: the graph for steps in which a row has one. A step without any walks the other graph, so a
model with adapters is as fast as without while nobody asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from woolly.errors import UnsupportedError, printable
from woolly.model import Adapter, Graph, Node, Weight
from woolly.model.adapters import blocks, owners, ranks, stacked
from woolly.model.numerics import F32

# Products, and what they are called where a delta is added to their sums.
ADAPTED = {
    "linear": "adapted_linear",
    "gate_up": "adapted_gate_up",
    "gate_up_quantize": "adapted_gate_up_quantize",
}


DELTAS = frozenset(("delta_down", "delta_up"))


def add_deltas(graph: Graph, adapters: Sequence[Adapter]) -> tuple[Graph, dict[str, F32]]:
    """The graph in which every product of an adapted weight has its delta, and the matrices that this takes."""
    nodes: list[Node] = []
    weights, matrices = dict(graph.weights), dict[str, F32]()
    missed = {tensor for adapter in adapters for tensor in adapter.deltas}
    for node in graph.nodes:
        weight = graph.weights[node.inputs[1]] if node.op in ADAPTED else None
        found = blocks(weight, adapters) if weight is not None else []
        if weight is None or not found:
            nodes.append(node)
            continue
        missed -= {block.part.tensor for block in found}
        a, b, of = f"{weight.name}.lora_a", f"{weight.name}.lora_b", f"{weight.name}.owners"
        matrices[a], matrices[b] = stacked(weight, found)
        for name in (a, b):
            weights[name] = Weight(name, matrices[name].shape, "F32")
        weights[of] = Weight(of, (len(owners(found)),), "F32", values=owners(found))
        step = ("spans", "scales", "want" if node.rows == "wants" else "")
        low, delta = f"{node.name}.low", f"{node.name}.delta"
        nodes += [
            Node(low, "delta_down", (node.inputs[0], a, of, *step), {}, node.rows, ranks(found)),
            Node(delta, "delta_up", (low, b, of, *step), {}, node.rows, weight.shape[0]),
            replace(node, op=ADAPTED[node.op], inputs=(*node.inputs, delta)),
        ]
    if missed:  # a pass has made something else of its product
        raise UnsupportedError(
            f"the adapter changes '{printable(min(missed))}', and no adapter of that tensor is supported",
            suggestion="use a file into which it was merged",
        )
    return replace(graph, nodes=tuple(nodes), weights=MappingProxyType(weights)), matrices
