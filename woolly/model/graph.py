"""The graph language: what a model computes, as data.

A Graph is a list of nodes in an order that can be run from top to bottom. A node names its op and its operands: other
nodes before it, weights of the file, states (the caches), tables by position, or the inputs of a step. Nothing here
holds bytes of weights, and nothing changes after it is made: a pass takes a graph and returns another
(`dataclasses.replace`), and `check` asks the whole grammar again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from woolly.model.meta import Meta
from woolly.model.ops import OPS
from woolly.model.rules import Count, Dtype
from woolly.model.tables import Table


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a tensor of the file: of each expert's matrix, where it has several; of a vector some values."""

    tensor: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Weight:
    """Tensors of the file as one operand: (experts, rows, k), (rows, k) or (n,), the rows of the parts one after the
    other.

    `alternate` asks for the panels of its two parts in turn (gate and up); it does not change the logical rows. Rows of
    a `transposed` one are the columns of each matrix in the file, decoded. A vector may have `values` of its own, which
    are in no file.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    parts: tuple[Rows, ...] = ()  # none: the whole tensor of this name
    alternate: bool = False
    transposed: bool = False
    values: tuple[float, ...] = ()

    @property
    def rows(self) -> tuple[Rows, ...]:
        """The rows of tensors that it is made of."""
        return self.parts or (Rows(self.name, 0, self.shape[max(len(self.shape) - 2, 0)]),)

    @property
    def kind(self) -> str:
        return ("vector", "matrix", "experts")[len(self.shape) - 1]


@dataclass(frozen=True, slots=True)
class State:
    """What a layer keeps of a sequence from step to step.

    rows: keys and values, rows of (heads, dim) and (heads, value dim) per position, kept as `dtype` (f32, f16, q8) in
        cache pages. With a window a position is read by itself and the `window` - 1 positions after it at the most,
        and by no other; 0: by all. The shape is (heads, dim) where both are as long, else (heads, dim, value dim).
        Where it is `latent`, a position has one row alone, whose first columns are its values.
    carry: one blob of float32 values of this shape per sequence, in a slot.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["rows", "carry"] = "rows"
    dtype: str = "f32"
    window: int = 0
    latent: bool = False

    @property
    def heads(self) -> int:
        return self.shape[0]

    @property
    def dim(self) -> int:
        return self.shape[1]

    @property
    def value_dim(self) -> int:
        return self.shape[-1]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `rows` says how many rows it has in a step: one per token, per wanted row, or per span."""

    name: str
    op: str
    inputs: tuple[str, ...]  # "" is an optional operand left out
    attrs: Mapping[str, int | float]
    rows: Count
    width: int
    dtype: Dtype = "f32"

    @property
    def kind(self) -> str:
        return self.dtype if self.width else "order"


@dataclass(frozen=True, slots=True)
class Input:
    """An array a step brings: tokens and positions [rows], spans [spans, SPAN columns], scales [spans, adapters], want
    [wants]."""

    kind: str


INPUTS = {name: Input(name) for name in ("tokens", "positions", "spans", "scales", "want")}

Operand: TypeAlias = Node | Weight | State | Table | Input


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
    def whole(self) -> bool:
        """Whether a sequence is computed in one step: rows see later ones, or an output is of all rows of a span."""
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
        found = (node.rows, node.width, node.dtype)
        _need(found == tuple(shape), f"{node.name} is {found}, its op gives {tuple(shape)}", after)
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
