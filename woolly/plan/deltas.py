"""The graph for steps in which a row has an adapter. A step without adapters runs the other graph, so a model with
loaded adapters is as fast as one without while no request uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from woolly.errors import UnsupportedError, printable
from woolly.model import Adapter, Graph, Node, Weight
from woolly.model.adapters import blocks, owners, ranks, stacked
from woolly.model.ops.numerics import F32

# Ops that are products, and for each the op that adds a delta to its sums.
ADAPTED = {
    "linear": "adapted_linear",
    "gate_up": "adapted_gate_up",
    "gate_up_quantize": "adapted_gate_up_quantize",
}


DELTAS = frozenset(("delta_down", "delta_up"))


def add_deltas(graph: Graph, adapters: Sequence[Adapter]) -> tuple[Graph, dict[str, F32]]:
    """The graph in which every product of an adapted weight has its delta, and the matrices A and B of the deltas."""
    nodes: list[Node] = []
    weights, matrices = dict(graph.weights), dict[str, F32]()
    missed = {tensor for adapter in adapters for tensor in adapter.deltas}
    for node in graph.nodes:
        weight = graph.weights[node.inputs[1]] if node.op in ADAPTED else None
        ranks_of_weight = blocks(weight, adapters) if weight is not None else []
        if weight is None or not ranks_of_weight:
            nodes.append(node)
            continue
        missed -= {block.part.tensor for block in ranks_of_weight}
        a, b, of = f"{weight.name}.lora_a", f"{weight.name}.lora_b", f"{weight.name}.owners"
        matrices[a], matrices[b] = stacked(weight, ranks_of_weight)
        for name in (a, b):
            weights[name] = Weight(name, matrices[name].shape, "F32")
        weights[of] = Weight(of, (len(owners(ranks_of_weight)),), "F32", values=owners(ranks_of_weight))
        step = ("spans", "scales", "want" if node.rows == "wants" else "")
        low, delta = f"{node.name}.low", f"{node.name}.delta"
        nodes += [
            Node(low, "delta_down", (node.inputs[0], a, of, *step), {}, node.rows, ranks(ranks_of_weight)),
            Node(delta, "delta_up", (low, b, of, *step), {}, node.rows, weight.shape[0]),
            replace(node, op=ADAPTED[node.op], inputs=(*node.inputs, delta)),
        ]
    if missed:  # a pass has replaced the product by an op that takes no delta
        raise UnsupportedError(
            f"the adapter changes '{printable(min(missed))}', and no adapter of that tensor is supported",
            suggestion="use a file into which it was merged",
        )
    return replace(graph, nodes=tuple(nodes), weights=MappingProxyType(weights)), matrices
