"""The graph language: what a model computes, as data.

A Graph is a list of nodes in an order that can be run from top to bottom. A node names its op and its operands: other
nodes before it, weights of the file, states (the caches), tables by position, or the inputs of a step. Nothing here
holds bytes of weights, and nothing changes after it is made: a pass takes a graph and returns another
(`dataclasses.replace`), and `check` asks the whole grammar again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from woolly.model.meta import Meta
from woolly.model.ops import OPS
from woolly.model.rules import Dtype, Rows
from woolly.model.tables import Table


@dataclass(frozen=True, slots=True)
class Weight:
    """Tensors of the file as one operand: (rows, k) or (n,), the rows of the parts one after the other.

    `alternate` asks for the panels of its two parts in turn (gate and up); it does not change the logical rows.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    parts: tuple[str, ...] = ()  # names of tensors; empty means the one of this name
    alternate: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors of the file it is made of."""
        return self.parts or (self.name,)

    @property
    def kind(self) -> str:
        return "matrix" if len(self.shape) == 2 else "vector"


@dataclass(frozen=True, slots=True)
class State:
    """Keys and values of one layer: one row of heads * dim each per position, kept as `dtype` (f32, f16, q8)."""

    kind: ClassVar[str] = "state"

    name: str
    heads: int
    dim: int
    dtype: str = "f32"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `rows` says how many rows it has in a step: one per token, or one per wanted row."""

    name: str
    op: str
    inputs: tuple[str, ...]  # "" is an optional operand left out
    attrs: Mapping[str, int | float]
    rows: Rows
    width: int
    dtype: Dtype = "f32"

    @property
    def kind(self) -> str:
        return self.dtype if self.width else "order"


@dataclass(frozen=True, slots=True)
class Input:
    """An array a step brings: tokens and positions [rows], spans [sequences, 3], want [wants]."""

    kind: str


INPUTS = {name: Input(name) for name in ("tokens", "positions", "spans", "want")}

Operand: TypeAlias = Node | Weight | State | Table | Input


@dataclass(frozen=True, slots=True)
class Graph:
    """What a model computes; `output` names the node that gives the logits."""

    nodes: tuple[Node, ...]
    weights: Mapping[str, Weight]
    states: Mapping[str, State]
    tables: Mapping[str, Table]
    output: str
    meta: Meta


def check(graph: Graph, *, after: str = "build") -> Graph:
    """The graph itself, if it is grammatical; else ValueError, which is a mistake of ours in the pass `after`.

    Every operand is there and comes before; kinds, sizes and types are what the op takes; attributes are exactly the
    op's; every cache is stored before it is read; the output is one row of logits per wanted row.
    """
    known: dict[str, Operand] = dict(INPUTS)
    for group in (graph.weights, graph.states, graph.tables):
        for name, operand in group.items():
            _need(name not in known and name != "", f"two operands are called '{name}'", after)
            _need(getattr(operand, "name", name) == name, f"'{name}' holds another name", after)
            known[name] = operand
    for state in graph.states.values():
        _need(state.dtype in ("f32", "f16", "q8"), f"{state.name} has no type {state.dtype}", after)
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
    output = known.get(graph.output)
    fits = isinstance(output, Node) and (output.rows, output.dtype, output.width) == ("wants", "f32", graph.meta.vocab)
    _need(fits, f"the output '{graph.output}' does not give logits", after)
    return graph


def _need(condition: bool, message: str, after: str) -> None:
    if not condition:
        raise ValueError(f"after {after}: {message}")
