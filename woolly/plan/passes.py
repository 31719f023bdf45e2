"""Passes: graph to graph. `quantize_inputs` comes first and is the only one that changes numbers.

Every other pass keeps each bit of the result: `take_early` leaves out rows that no node reads, and the others put fused
ops, whose reference is the composition of their parts, where the parts stood. PASSES is read top to bottom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from woolly.gguf.tensor_types import FORMATS
from woolly.model import GATES, Dtype, Graph, Node, Weight

_RECORDS: dict[int, Dtype] = {8: "q8", 16: "q16"}

# Ops that may stand between the product of keys or values and the cache.
ROW_BY_ROW = frozenset(("add_bias", "clamp", "layer_norm", "rms_norm", "rope", "scale"))


def quantize_inputs(graph: Graph, kv: str, *, exact: bool = False) -> Graph:
    """Products with quantised weights take integer activations, one scale per 32; caches are kept as `kv`.

    The integers have 8 bits, but 16 for what is stored in a cache: every later position reads it, so its error counts
    more than any other, and these products are the smallest of a layer. With `exact` all have 16. A model that is not
    causal keeps nothing from step to step, so none of this holds for its keys and values: they stay float32.
    """
    causal = graph.meta.causal
    stored, kv = (_stored(graph), kv) if causal else (set[str](), "f32")
    bits = {
        node.name: 16 if exact or node.name in stored else 8
        for node in graph.nodes
        if node.op in ("linear", "expert_linear") and not FORMATS[graph.weights[node.inputs[1]].format].is_float
    }
    asked = {(node.inputs[0], bits[node.name]) for node in graph.nodes if node.name in bits}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name in bits:
            node = replace(node, inputs=(f"{node.inputs[0]}.q{bits[node.name]}", *node.inputs[1:]))
        nodes.append(node)
        for wide, dtype in _RECORDS.items():  # both records right behind their source: one wait serves both
            if (node.name, wide) in asked:
                record = f"{node.name}.{dtype}"
                nodes.append(Node(record, "quantize", (node.name,), {"bits": wide}, node.rows, node.width, dtype))
    states = {n: replace(state, dtype=kv) if state.kind == "rows" else state for n, state in graph.states.items()}
    return replace(graph, nodes=tuple(nodes), states=MappingProxyType(states))


def _stored(graph: Graph) -> set[str]:
    """Nodes whose values go into a cache, directly or through what is done to them row by row."""
    stored: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op == "store":
            stored.update(node.inputs[:2])
        elif node.name in stored and node.op in ROW_BY_ROW:
            stored.add(node.inputs[0])
        elif node.name in stored and node.op == "join":
            stored.update(node.inputs)
    return stored


def take_early(graph: Graph) -> Graph:
    """Wanted rows are taken as soon as rows no longer look at each other, and from there on only they are computed.

    In the middle of a prompt no row is wanted: its last layer gives keys and values, and nothing after them.
    """
    nodes = {node.name: node for node in graph.nodes}
    late: set[str] = set()  # nodes of which only the wanted rows are read
    full = set(graph.outputs.values())  # nodes of which all rows are read
    for node in reversed(graph.nodes):
        if node.op != "take" and node.rows == "rows" and node.name not in full and _reads_same_row(node, graph, nodes):
            late.add(node.name)
        elif node.op != "take":
            full.update(node.inputs)
    rewritten: dict[str, Node] = {}
    taken: dict[str, str] = {}  # for a node, the one that has its wanted rows

    def wanted(name: str, reader: str) -> str:
        if name not in nodes or name in late or nodes[name].rows != "rows":
            return taken.get(name, name)
        if name not in taken:
            source, taken[name] = nodes[name], f"{reader}.wanted.{len(taken) + 1}"
            rows = Node(taken[name], "take", (name, "want"), {}, "wants", source.width)
            if source.op == "quantize":  # a record is made anew from the taken rows of its source
                rows = replace(source, name=rows.name, inputs=(wanted(source.inputs[0], reader),), rows="wants")
            rewritten[rows.name] = rows
        return taken[name]

    for node in graph.nodes:
        if node.op == "take":
            taken[node.name] = wanted(node.inputs[0], node.name)
        elif node.name in late or node.rows == "wants":
            rewritten[node.name] = replace(node, inputs=tuple(wanted(n, node.name) for n in node.inputs), rows="wants")
        else:
            rewritten[node.name] = node
    outputs = {name: taken.get(node, node) for name, node in graph.outputs.items()}
    return replace(graph, nodes=tuple(rewritten.values()), outputs=MappingProxyType(outputs))


def _reads_same_row(node: Node, graph: Graph, nodes: Mapping[str, Node]) -> bool:
    """Whether a row is computed from weights and the same row of other nodes alone. False for a slice: taking rows of
    the slice copies less than taking those of its source."""
    rows = [name in graph.weights or (name in nodes and nodes[name].width > 0) for name in filter(None, node.inputs)]
    return node.op != "slice" and all(rows)


def fuse_gate_up(graph: Graph) -> Graph:
    """act(gate . x) * (up . x) becomes one product over both matrices, their panels in turn; so for those of experts.

    Each row is the same dot product as before. The 32 values that a thread makes from four panels stay in that thread.
    """
    nodes, uses = {node.name: node for node in graph.nodes}, _uses(graph)
    weights = dict(graph.weights)
    gone: set[str] = set()
    fused: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "mul":
            continue
        act, up = (nodes[name] for name in node.inputs)
        gate = nodes.get(act.inputs[0])
        if act.op not in GATES or gate is None or gate.op not in _GATED or gate.op != up.op or not _siblings(gate, up):
            continue
        a, b = weights[gate.inputs[1]], weights[up.inputs[1]]
        alone = all(uses[name] == 1 for name in (act.name, gate.name, up.name))
        if not alone or (a.format, a.shape) != (b.format, b.shape):
            continue
        both = _joined((a, b), alternate=True)
        weights[both.name] = both
        inputs = (gate.inputs[0], both.name, *filter(None, gate.inputs[2:]))
        attrs = {"act": GATES.index(act.op)}
        fused[node.name] = replace(node, op=_GATED[gate.op], inputs=inputs, attrs=attrs)
        gone |= {act.name, gate.name, up.name}
    return _rebuilt(graph, (fused.get(n.name, n) for n in graph.nodes if n.name not in gone), weights)


# Ops that gate and up may be products of, and the op that computes both.
_GATED = {"linear": "gate_up", "expert_linear": "expert_gate_up"}


def _siblings(a: Node, b: Node) -> bool:
    """Whether two products are of one input, and of the same experts where they have some, without an epilogue."""
    if a.op == "linear" and not (_plain(a) and _plain(b)):
        return False
    return (a.inputs[0], a.inputs[2:]) == (b.inputs[0], b.inputs[2:])


def fuse_epilogues(graph: Graph) -> Graph:
    """A bias, a factor and a residual after a product are applied where its sums are complete.

    The order stays: sum, + bias, * scale, residual + that, each rounded.
    """
    uses = _uses(graph)
    done: dict[str, Node] = {}
    for node in graph.nodes:
        done[node.name] = node
        for name in node.inputs:
            product = done.get(name)
            if product is None or product.op != "linear" or product.inputs[3] or uses[name] != 1:
                continue
            fused = _absorbed(product, node)
            if fused is not None:
                del done[name]
                done[node.name] = replace(fused, name=node.name)
                break
    return _rebuilt(graph, done.values(), dict(graph.weights))


def _absorbed(product: Node, node: Node) -> Node | None:
    """The product with the op that follows it, where the order of an epilogue allows it."""
    x, weight, bias, _ = product.inputs
    scale = product.attrs["scale"]
    if node.op == "add_bias" and not bias and scale == 1:
        return replace(product, inputs=(x, weight, node.inputs[1], ""))
    if node.op == "scale" and scale == 1:
        return replace(product, attrs={"scale": node.attrs["by"]})
    if node.op == "add":
        residual = node.inputs[node.inputs[0] == product.name]
        return replace(product, inputs=(x, weight, bias, residual))
    return None


def merge_siblings(graph: Graph) -> Graph:
    """Products of one input with weights of one type become one, its matrices one after the other (q, k and v).

    Each row is the same dot product as before; the results are slices. Saves instructions and the wait between them.
    """
    families: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.op == "linear" and not node.inputs[3] and node.rows == "rows":
            formats = [graph.weights[name].format for name in node.inputs[1:3] if name]
            families.setdefault((node.inputs[0], node.attrs["scale"], *formats), []).append(node)
    weights = dict(graph.weights)
    replaced: dict[str, list[Node]] = {}
    for family in families.values():
        if len(family) < 2:
            continue
        matrix = _joined([weights[node.inputs[1]] for node in family])
        weights[matrix.name] = matrix
        bias = ""
        if family[0].inputs[2]:
            vector = _joined([weights[node.inputs[2]] for node in family])
            weights[vector.name] = vector
            bias = vector.name
        merged = replace(
            family[0], name="+".join(n.name for n in family), inputs=(family[0].inputs[0], matrix.name, bias, ""),
            width=sum(n.width for n in family),
        )  # fmt: skip
        first = 0
        for node in family:
            piece = replace(node, op="slice", inputs=(merged.name,), attrs={"first": first, "count": node.width})
            replaced[node.name] = [merged, piece] if node is family[0] else [piece]
            first += node.width
    return _rebuilt(graph, (new for node in graph.nodes for new in replaced.get(node.name, [node])), weights)


def fuse_quantize(graph: Graph) -> Graph:
    """A norm, or gate and up, whose result is only ever quantised, is quantised where it is made.

    A norm that becomes two records is computed for each: that is cheaper than a barrier between norm and records.
    """
    nodes, uses = {node.name: node for node in graph.nodes}, _uses(graph)
    records = Counter(node.inputs[0] for node in graph.nodes if node.op == "quantize")
    gone: set[str] = set()
    fused: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "quantize":
            continue
        source, bits = nodes[node.inputs[0]], node.attrs["bits"]
        if uses[source.name] != records[source.name]:
            continue
        if source.op == "rms_norm" and source.attrs["heads"] == 1 and source.inputs[1]:
            attrs = {"eps": source.attrs["eps"], "bits": bits}
            fused[node.name] = replace(node, op="norm_quantize", inputs=source.inputs, attrs=attrs)
        elif source.op in ("gate_up", "expert_gate_up"):
            attrs = {**source.attrs, "bits": bits}
            fused[node.name] = replace(node, op=f"{source.op}_quantize", inputs=source.inputs, attrs=attrs)
        else:
            continue
        gone.add(source.name)
    return _rebuilt(graph, (fused.get(n.name, n) for n in graph.nodes if n.name not in gone), dict(graph.weights))


def fuse_store(graph: Graph) -> Graph:
    """The thread that attends to keys and values stores them, too: with few rows no thread waits for another's store.
    Not in latent attention, where several threads attend to one row, nor where a row sees later ones."""
    stores, uses = {node.name: node for node in graph.nodes if node.op == "store"}, _uses(graph)
    gone: set[str] = set()
    fused: dict[str, Node] = {}
    for node in graph.nodes:
        apart = node.op == "attend" and (graph.states[node.inputs[1]].latent or not node.attrs["causal"])
        if node.op != "attend" or uses[node.inputs[3]] != 1 or apart:
            continue
        k, v, *_ = stores[node.inputs[3]].inputs
        fused[node.name] = replace(node, op="store_attend", inputs=(*node.inputs[:3], k, v, *node.inputs[4:]))
        gone.add(node.inputs[3])
    return _rebuilt(graph, (fused.get(n.name, n) for n in graph.nodes if n.name not in gone), dict(graph.weights))


def stores_first(graph: Graph) -> Graph:
    """fuse_store undone, for large steps: threads share the rows of a sequence, and a row attends to all before it."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "store_attend":
            q, state, spans, k, v, *optional = node.inputs
            after = Node(f"{node.name}.store", "store", (k, v, state, spans), {}, node.rows, 0)
            nodes += [after, replace(node, op="attend", inputs=(q, state, spans, after.name, *optional))]
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


PASSES: dict[str, Callable[[Graph], Graph]] = {
    "take_early": take_early,
    "fuse_gate_up": fuse_gate_up,
    "fuse_epilogues": fuse_epilogues,
    "merge_siblings": merge_siblings,
    "fuse_quantize": fuse_quantize,
    "fuse_store": fuse_store,
}


def _uses(graph: Graph) -> Counter[str]:
    return Counter([name for node in graph.nodes for name in node.inputs] + [*graph.outputs.values()])


def _plain(linear: Node) -> bool:
    return linear.inputs[2:] == ("", "") and linear.attrs["scale"] == 1


def _joined(weights: Sequence[Weight], *, alternate: bool = False) -> Weight:
    """One weight whose rows are those of all, one after the other; they have one format."""
    return Weight(
        "+".join(weight.name for weight in weights),
        _stacked([weight.shape for weight in weights]),
        weights[0].format,
        tuple(part for weight in weights for part in weight.rows),
        alternate,
    )


def _stacked(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of matrices or vectors joined along their rows; experts are joined one by one."""
    axis = max(len(shapes[0]) - 2, 0)
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def _rebuilt(graph: Graph, nodes: Iterable[Node], weights: dict[str, Weight]) -> Graph:
    """The graph with these nodes, and of the weights those that are still used."""
    listed = tuple(nodes)
    used = {name for node in listed for name in node.inputs}
    return replace(graph, nodes=listed, weights=MappingProxyType({n: w for n, w in weights.items() if n in used}))
