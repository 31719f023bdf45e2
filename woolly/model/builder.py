"""Builder: what a family writes its graph with.

Methods are named after ops and return nodes. A weight is taken by name together with the shape the graph expects; the
file must have it in that shape. `finish` refuses a file with a tensor that nobody took: it would be another model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from woolly.errors import FileError, UnsupportedError, printable
from woolly.formats import FORMATS
from woolly.gguf import GgufFile
from woolly.model.graph import INPUTS, Graph, Node, Operand, State, Weight, check
from woolly.model.meta import Meta, missing_tensor
from woolly.model.ops import OPS
from woolly.model.tables import RopeTable, Table

Bias = Literal["none", "optional", "required"]


class Block:
    """Names of one layer's weights: `block.attn_q` is "blk.{i}.attn_q.weight"."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return f"blk.{self._index}.{name}.weight"


class Builder:
    """Writes one graph for one file."""

    def __init__(self, meta: Meta, file: GgufFile) -> None:
        self._meta = meta
        self._file = file
        self._where = printable(file.path.name)
        self._nodes: dict[str, Node] = {}
        self._weights: dict[str, Weight] = {}
        self._states: dict[str, State] = {}
        self._tables: dict[str, Table] = {}
        self._taken: set[str] = set()
        self._cut: set[str] = set()  # nodes whose rows have a piece for each expert
        self._prefix = ""
        self._outputs: dict[str, str] = {}

    # Ops.

    def embed(self, name: str, vocab: int, width: int) -> Node:
        return self._node("embed", _stem(name), ("tokens", self.weight(name, vocab, width)))

    def rms_norm(self, x: Node, name: str, *, eps: float, heads: int = 1) -> Node:
        weight = self.weight(name, x.width // heads)
        return self._node("rms_norm", _stem(name), (x.name, weight), eps=eps, heads=heads)

    def linear(self, x: Node, name: str, width: int, *, bias: Bias = "none", tied: str = "") -> Node:
        """A product, and its bias where the family has one; `tied` names the weight to use where `name` is absent."""
        if tied and name not in self._file.tensors:
            name = tied
        y = self._node("linear", _stem(name), (x.name, self.weight(name, width, x.width), "", ""), scale=1.0)
        beside = f"{_stem(name)}.bias"
        if bias == "required" or (bias == "optional" and beside in self._file.tensors):
            y = self._node("add_bias", f"{y.name}.add_bias", (y.name, self.weight(beside, width)))
        return y

    def rope(self, x: Node, table: str, *, heads: int, halves: bool) -> Node:
        """Rotate pairs of neighbours, or with `halves` column i with column i + rot/2."""
        rot = self._tables[table].width
        inputs = (x.name, "positions", table)
        return self._node("rope", f"{x.name}.rope", inputs, heads=heads, rot=rot, halves=int(halves))

    def temper(self, x: Node, table: str) -> Node:
        return self._node("temper", f"{x.name}.temper", (x.name, "positions", table))

    def attend(
        self, q: Node, k: Node, v: Node, *, layer: int, heads: int, kv_heads: int, scale: float, window: int = 0
    ) -> Node:
        """Store this step's keys and values in the layer's cache, then attend to it: a row to all positions up to its
        own, or the last `window` of them; where the model is not causal, to its whole span."""
        state = State(f"cache.{layer}", (kv_heads, k.width // kv_heads), window=window)
        self._states[state.name] = state
        after = self._node("store", f"{self._prefix}store", (k.name, v.name, state.name, "spans"))
        inputs = (q.name, state.name, "spans", after.name)
        reach = {"window": window, "causal": int(self._meta.causal)}
        return self._node("attend", f"{self._prefix}attend", inputs, heads=heads, scale=scale, **reach)

    def add(self, x: Node, y: Node) -> Node:
        return self._node("add", f"{self._prefix}add", (x.name, y.name))

    def mul(self, x: Node, y: Node) -> Node:
        return self._node("mul", f"{self._prefix}mul", (x.name, y.name))

    def silu(self, x: Node) -> Node:
        return self._node("silu", f"{x.name}.silu", (x.name,))

    def scale(self, x: Node, by: float) -> Node:
        return x if by == 1.0 else self._node("scale", f"{x.name}.scale", (x.name,), by=by)

    def divide(self, x: Node, by: float) -> Node:
        return x if by == 1.0 else self._node("divide", f"{x.name}.divide", (x.name,), by=by)

    def softmax(self, x: Node) -> Node:
        return self._node("softmax", f"{x.name}.softmax", (x.name,))

    def normalize(self, x: Node, *, least: float) -> Node:
        return self._node("normalize", f"{x.name}.normalize", (x.name,), least=least)

    def top_experts(self, scores: Node, *, count: int, groups: int = 1, groups_used: int = 1) -> Node:
        chosen = {"count": count, "groups": groups, "groups_used": groups_used}
        return self._node("top_experts", f"{self._prefix}top_experts", (scores.name,), **chosen)

    def take_scores(self, scores: Node, ids: Node) -> Node:
        return self._node("take_scores", f"{scores.name}.take_scores", (scores.name, ids.name))

    def expert_linear(self, x: Node, name: str, ids: Node, experts: int, width: int) -> Node:
        """Products with the matrices of the chosen experts; x has the row of all of them, or a piece for each."""
        k = x.width // ids.width if x.name in self._cut else x.width
        return self._node("expert_linear", _stem(name), (x.name, self.weight(name, experts, width, k), ids.name))

    def expert_bias(self, x: Node, name: str, ids: Node, experts: int) -> Node:
        bias = self.vector(name, experts, x.width // ids.width)
        return self._node("expert_bias", f"{x.name}.expert_bias", (x.name, bias, ids.name))

    def expert_scale(self, x: Node, name: str, ids: Node, experts: int) -> Node:
        return self._node("expert_scale", f"{x.name}.expert_scale", (x.name, self.weight(name, experts), ids.name))

    def expert_inputs(self, x: Node, weights: Node) -> Node:
        return self._node("expert_inputs", f"{x.name}.expert_inputs", (x.name, weights.name))

    def expert_sum(self, x: Node, weights: Node | None, *, count: int | None = None) -> Node:
        """The pieces of a row added, each times its weight; without weights there are `count`."""
        pieces = weights.width if weights is not None else count
        if pieces is None:
            raise ValueError(f"{x.name} has an unknown number of pieces")
        inputs = (x.name, weights.name if weights is not None else "")
        return self._node("expert_sum", f"{x.name}.expert_sum", inputs, count=pieces)

    def take(self, x: Node) -> Node:
        return self._node("take", "take", (x.name, "want"))

    # Operands.

    def block(self, index: int) -> Block:
        """Begin a layer."""
        self._prefix = f"blk.{index}."
        return Block(index)

    def weight(self, name: str, *shape: int) -> str:
        """Take a tensor of the file, which must have this shape: (experts, rows, k), (rows, k), or (n,) for a vector of
        floats."""
        return self._take(name, shape, shape)

    def vector(self, name: str, *shape: int) -> str:
        """Take a tensor of floats, which must have this shape, as a vector: its rows one after the other."""
        return self._take(name, shape, (math.prod(shape),))

    def _take(self, name: str, shape: tuple[int, ...], taken: tuple[int, ...]) -> str:
        info = self._file.tensors.get(name)
        if info is None:
            raise missing_tensor(self._file, name)
        if info.shape not in (shape, (1, *shape)):
            found, expected = _by(info.shape), _by(shape)
            raise FileError(f"{self._where}: tensor {name} is {found}, but {expected} is expected", tensor=name)
        if len(taken) == 1 and not FORMATS[info.format].is_float:
            raise UnsupportedError(
                f"{self._where}: tensor {name} is a vector of type {info.format}; F32, F16 and BF16 are supported",
                tensor=name,
            )
        self._taken.add(name)
        self._weights[name] = Weight(name, taken, info.format)
        return name

    def table(self, name: str, table: Table) -> str:
        self._tables[name] = table
        return name

    def rope_table(self, rope: RopeTable) -> str:
        """The rotary table; the factors of `rope_freqs.weight` go into it where the file has them."""
        name = "rope_freqs.weight"
        if name in self._file.tensors:
            self.weight(name, rope.rot // 2)
            weight = self._weights.pop(name)  # its values are in the table: no op reads it
            raw = np.frombuffer(self._file.data(name), np.uint8).reshape(1, -1)
            factors = FORMATS[weight.format].decode(raw, rope.rot // 2)[0]
            if not (np.isfinite(factors) & (factors > 0)).all():
                raise FileError(f"{self._where}: tensor {name} has a factor that is not above 0", tensor=name)
            rope = replace(rope, factors=tuple(factors.tolist()))
        return self.table("rope", rope)

    def logits(self, x: Node) -> None:
        self._outputs["logits"] = x.name

    def finish(self) -> Graph:
        """The checked graph; every tensor of the file must have been taken."""
        for name in self._file.tensors:
            if name not in self._taken:
                raise FileError(
                    f"{self._where}: tensor {printable(name)} is no part of a {self._meta.architecture} model "
                    f"of {self._meta.layers} layers",
                    suggestion="ignoring it would give another model's answers: use a file made for this family",
                    tensor=name,
                )
        nodes = tuple(self._nodes.values())
        return check(Graph(nodes, self._weights, self._states, self._tables, self._outputs, self._meta))

    def _node(self, op: str, name: str, inputs: tuple[str, ...], **attrs: int | float) -> Node:
        operands = [self._operand(i) if i else None for i in inputs]
        rows, width, dtype = OPS[op].shape(operands, attrs)
        unique, number = name, 2
        while unique in self._nodes:
            unique, number = f"{name}.{number}", number + 1
        node = Node(unique, op, inputs, attrs, rows, width, dtype)
        self._nodes[unique] = node
        if op in ("expert_linear", "expert_inputs") or (op != "expert_sum" and inputs[0] in self._cut):
            self._cut.add(unique)
        return node

    def _operand(self, name: str) -> Operand:
        groups: tuple[Mapping[str, Operand], ...] = (
            INPUTS, self._nodes, self._weights, self._states, self._tables,
        )  # fmt: skip
        return next(group[name] for group in groups if name in group)


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n}" for n in shape)
