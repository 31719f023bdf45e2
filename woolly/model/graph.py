"""The graph language: what a model computes, as data.

A Graph is a list of nodes in an order that can be run from top to bottom. A node names its op and its operands
(`operands.py`). A graph never changes once it is made: a pass takes one and returns another (`dataclasses.replace`);
`check` verifies the whole grammar again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from woolly.model.meta import Meta
from woolly.model.operands import INPUTS, Node, Operand, State, Weight
from woolly.model.ops import OPS
from woolly.model.tables import Table


@dataclass(frozen=True, slots=True)
class Graph:
    """What a model computes. `outputs`: the nodes that a step gives, by name: `logits` has a row of the vocabulary for
    each wanted row, `embedding` a row for each wanted row or span, and so does `rank`, with a score for each label."""

    nodes: tuple[Node, ...]
    weights: Mapping[str, Weight]
    states: Mapping[str, State]
    tables: Mapping[str, Table]
    outputs: Mapping[str, str]
    meta: Meta

    @property
    def single_step(self) -> bool:
        """Whether a sequence must be computed in a single step: rows see later ones, or an output needs all of them."""
        outputs = self.outputs.values()
        return not self.meta.causal or any(node.rows == "spans" for node in self.nodes if node.name in outputs)


def check(graph: Graph, *, after: str = "build") -> Graph:
    """The graph itself, if it is grammatical; else ValueError, which is a bug in the pass `after`.

    Every operand is there and comes before; kinds, sizes and types are what the op takes; attributes are exactly the
    op's; every cache is stored before it is read; outputs are rows of floats, those of logits one per wanted row.
    """
    known: dict[str, Operand] = dict(INPUTS)
    for group in (graph.weights, graph.states, graph.tables):
        for name, operand in group.items():
            _need(name not in known and name != "", f"two operands are called '{name}'", after)
            _need(getattr(operand, "name", name) == name, f"'{name}' holds another name", after)
            known[name] = operand
    for state in graph.states.values():
        types = ("f32", "f16", "q8") if state.kind == "rows" else ("f32",)
        _need(state.dtype in types, f"{state.name} has no type {state.dtype}", after)
        _need(state.window >= 0 and (state.kind == "rows" or not state.window), f"{state.name} has no window", after)
    for node in graph.nodes:
        _need(node.name not in known and node.name != "", f"two operands are called '{node.name}'", after)
        _need(node.op in OPS, f"{node.name}: there is no op '{node.op}'", after)
        for name in node.inputs:
            _need(name == "" or name in known, f"{node.name}: operand '{name}' does not come before it", after)
        operands = [known[name] if name else None for name in node.inputs]
        try:
            shape = OPS[node.op].shape(operands, node.attrs)
        except ValueError as error:
            raise ValueError(f"after {after}: {node.name}: {error}") from None
        actual = (node.rows, node.width, node.dtype)
        _need(actual == tuple(shape), f"{node.name} is {actual}, its op gives {tuple(shape)}", after)
        known[node.name] = node
    _need(bool(graph.outputs), "there is no output", after)
    for name, node_name in graph.outputs.items():
        output = known.get(node_name)
        fits = isinstance(output, Node) and output.dtype == "f32" and output.width > 0 and output.rows != "rows"
        if name == "logits" and isinstance(output, Node):
            fits = fits and (output.rows, output.width) == ("wants", graph.meta.vocab)
        _need(fits, f"the output '{node_name}' does not give {name}", after)
    return graph


def _need(condition: bool, message: str, after: str) -> None:
    if not condition:
        raise ValueError(f"after {after}: {message}")
