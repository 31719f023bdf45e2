"""Which weights are read: the bytes for one token, and the instruction with the largest product."""

from __future__ import annotations

from collections.abc import Iterable

from woolly.model import Graph
from woolly.plan.program import WEIGHT, PackOrder, Program


def token_bytes(graph: Graph, packs: Iterable[PackOrder]) -> int:
    """Bytes of weights that a token reads: whole those that a product or a norm takes, of experts those it chooses."""
    nodes, sizes = {node.name: node for node in graph.nodes}, {order.weight: order.nbytes for order in packs}
    read: dict[str, int] = {}
    for node in graph.nodes:
        for name in set(node.inputs) & set(sizes):
            if node.op == "embed":
                continue  # a token reads one row of an embedding
            count = experts = 1
            if node.op.startswith("expert_") and node.inputs[2]:
                count = nodes[node.inputs[2]].width
                experts = graph.weights[name].shape[0]
                if node.op == "expert_bias":
                    experts //= node.width // count
            read[name] = sizes[name] * count // experts
    return sum(read.values())


def largest_product(program: Program) -> int:
    """The index of the instruction that reads the largest weight whole."""
    names = [op.name for op in program.ops]
    largest = (0, 0)
    for index, row in enumerate(program.code):
        name = names[int(row["op"])]
        if name == "embed" or name.startswith("expert_"):
            continue
        for operand in row["inputs"]:
            if operand["kind"] == WEIGHT:
                largest = max(largest, (int(operand["nbytes"]), -index))
    return -largest[1]
