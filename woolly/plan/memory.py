"""Fixed places in one work area: two values share bytes only when their lives do not meet.

A value lives from the node that makes it to the last one that reads it. Places are for the largest step, so a step
allocates nothing; barriers (lower.py) keep threads apart where bytes are used again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, replace

from woolly.model import OPS, Graph, Node
from woolly.plan.program import Bounds

LINE = 64  # places begin at cache lines
REUSE_DELAY = (
    1  # nodes for which bytes stay free after their last use: a neighbour that took them at once would have to wait
)

# Ops that read each value once, where they write it: their result may take the place of the first operand.
IN_PLACE = frozenset(
    (
        "add", "add_bias", "add_scaled", "clamp", "clamped_gate", "div_vector", "divide", "exp", "expert_bias",
        "expert_scale", "gelu", "mul", "mul_vector", "relu", "relu2", "scale", "scale_heads", "sigmoid", "silu",
        "soft_cap", "softplus", "sparsify", "tanh", "scale_by_position", "xielu",
    )
)  # fmt: skip

# Ops so small that in a small step every thread does them for itself.
REPLICATED_OPS = frozenset(
    (
        *("layer_norm", "norm_quantize", "quantize", "rms_norm", "rope", "take", "scale_by_position"),
        *("softmax", "top_experts", "take_scores", "normalize", "expert_sum"),
    )
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node's rows lie: bytes from the start of the work area, and from row to row."""

    offset: int
    stride: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class WorkArea:
    places: dict[str, Place]
    nbytes: int


def place(graph: Graph, bounds: Bounds, ops: Collection[str] = OPS) -> WorkArea:
    """A place for every node of these ops that has a value; slices of them lie inside what they are cut from."""
    nodes = {node.name: node for node in graph.nodes}
    dies = _last_reads(graph, nodes)
    places: dict[str, Place] = {}
    taken: list[tuple[int, int, str]] = []  # (first byte, end, the node whose life holds them)
    most = 0
    for index, node in enumerate(graph.nodes):
        taken = [piece for piece in taken if dies[piece[2]] + REUSE_DELAY >= index]
        if node.op == "slice" and node.inputs[0] in places:
            sliced = places[node.inputs[0]]
            first = sliced.offset + 4 * int(node.attrs["first"])
            places[node.name] = Place(first, sliced.stride, sliced.nbytes - (first - sliced.offset))
        elif node.op in ops and node.width:
            stride, nbytes = _size(node, bounds)
            source = node.inputs[0]
            owned = any(source == owner for *_, owner in taken)
            if node.op in IN_PLACE and owned and dies[source] == index and places[source].nbytes == nbytes:
                at = places[source].offset
                taken = [piece for piece in taken if piece[2] != source]
            else:
                at = _gap(taken, nbytes)
            taken = sorted([*taken, (at, at + nbytes, node.name)])
            places[node.name] = Place(at, stride, nbytes)
            most = max(most, at + nbytes)
    return WorkArea(places, most)


def concat(area: WorkArea, more: WorkArea) -> WorkArea:
    """Both, one behind the other."""
    moved = {name: replace(each, offset=area.nbytes + each.offset) for name, each in more.places.items()}
    return WorkArea(area.places | moved, area.nbytes + more.nbytes)


def _size(node: Node, bounds: Bounds) -> tuple[int, int]:
    """Bytes from row to row, and of all rows, rounded up to whole lines."""
    row = {"f32": 4 * node.width, "q8": node.width * 3 // 2, "q16": node.width * 5 // 2, "ids": 4 * node.width}[
        node.dtype
    ]
    rows = {"rows": bounds.rows, "wants": bounds.wants, "spans": bounds.sequences}[node.rows]
    # outputs are handed out as one array, so their rows follow each other without a gap
    stride = row if node.rows != "rows" and node.dtype == "f32" else -(-row // LINE) * LINE
    return stride, -(-rows * stride // LINE) * LINE


def _last_reads(graph: Graph, nodes: dict[str, Node]) -> dict[str, int]:
    """For each node the index of the last one that reads it; reading a slice is reading what it is cut from.

    A value read by an op that every thread does for itself lives until the next op that the threads share: before that
    no thread waits for the slowest.
    """
    dies = {node.name: index for index, node in enumerate(graph.nodes)}
    for index, node in enumerate(graph.nodes):
        for name in node.inputs:
            while name in nodes:
                dies[name] = max(dies[name], index)
                name = nodes[name].inputs[0] if nodes[name].op == "slice" else ""
    shared = [*(i for i, node in enumerate(graph.nodes) if node.op not in REPLICATED_OPS), len(graph.nodes)]
    dies = {name: shared[bisect_left(shared, index)] for name, index in dies.items()}
    dies |= dict.fromkeys(graph.outputs.values(), len(graph.nodes))
    return dies


def _gap(taken: list[tuple[int, int, str]], nbytes: int) -> int:
    """The first place where `nbytes` bytes are free."""
    at = 0
    for first, end, _ in taken:
        if first - at >= nbytes:
            return at
        at = max(at, end)
    return at
