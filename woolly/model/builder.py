"""Builder: what a family writes its graph with.

Methods are named after ops and return nodes. What goes into them is taken from the file (`tensors.py`) or kept of a
sequence (`states.py`). `finish` refuses a file with a tensor that was not taken: its model is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from woolly.gguf import GgufFile
from woolly.model.graph import Graph, check
from woolly.model.meta import Block, Meta
from woolly.model.operands import INPUTS, Node, Operand, State
from woolly.model.ops import OPS
from woolly.model.states import States
from woolly.model.tensors import RowRanges, Tensors, pieces, rows_of, stem_of

Bias = Literal["optional", "required"]
Activation = Literal["silu", "gelu", "relu", "relu2", "sigmoid", "tanh", "exp", "softplus"]


class Builder:
    """Writes one graph for one file, whose sequences have at most `context` positions."""

    def __init__(self, meta: Meta, file: GgufFile, context: int) -> None:
        self.width = meta.width
        self._meta = meta
        self._tensors = tensors = Tensors(file, context)
        self._states = States(meta, file)
        self._nodes: dict[str, Node] = {}
        self._cut: set[str] = set()  # nodes whose rows have a piece for each expert
        self._prefix = ""
        self._outputs: dict[str, str] = {}
        # What is taken of the file, so that a family has it from its builder.
        self.has, self.shape, self.rows, self.pass_over = tensors.has, tensors.shape, tensors.rows, tensors.pass_over
        self.weight, self.flat, self.values, self.number = tensors.weight, tensors.flat, tensors.values, tensors.number
        self.constant, self.table = tensors.constant, tensors.table
        self.rope_table, self.local_rope_table = tensors.rope_table, tensors.local_rope_table

    # Ops.

    def embed(self, name: str = "token_embd.weight", width: int = 0) -> Node:
        weight = self.weight(name, self._meta.vocab, width or self.width)
        return self._node("embed", stem_of(name), ("tokens", weight))

    def embed_positions(self, name: str) -> Node:
        """A learned row for each position: a context cannot be longer than there are rows."""
        rows = self._tensors.rows_of_positions(name)
        return self._node("embed_positions", stem_of(name), ("positions", self.weight(name, rows, self.width)))

    def rms_norm(self, x: Node, name: str = "", *, heads: int = 1, eps: float | None = None) -> Node:
        """Without a name the norm has no weights."""
        if eps is None:
            eps = self._meta.keys.real("attention.layer_norm_rms_epsilon", least=0.0, most=1.0)
        y = self._node("rms_norm", _named(x, name), (x.name, self._norm_weight(x, name, heads)), eps=eps, heads=heads)
        return self._biased(y, name, x.width) if name else y

    def layer_norm(self, x: Node, name: str = "", *, heads: int = 1, eps: float | None = None) -> Node:
        """Without a name the norm has no weights; a bias where the file has it."""
        if eps is None:
            eps = self._meta.keys.real("attention.layer_norm_epsilon", least=0.0, most=1.0)
        bias = f"{stem_of(name)}.bias"
        bias = self.weight(bias, x.width) if name and self.has(bias) else ""
        inputs = (x.name, self._norm_weight(x, name, heads), bias)
        return self._node("layer_norm", _named(x, name), inputs, eps=eps, heads=heads)

    def linear(
        self,
        x: Node,
        name: str,
        width: int,
        *,
        bias: Bias = "optional",
        tied: str = "",
        first: int = 0,
        of: int = 0,
        heads: int = 1,
    ) -> Node:
        """A product, times the weight's `.scale` and plus its `.bias` where the file has them; `tied` names the weight
        to use where `name` is absent. With `of`, the weight has `of` rows for each of its heads, of which the product
        takes width / heads, from `first` on."""
        if tied and not self.has(name):
            name = tied
        parts = pieces(name, first, width // heads, of, heads) if of else ()
        return self.product(x, name, parts, of * heads or width, bias=bias)

    def product(self, x: Node, name: str, parts: RowRanges, rows: int, *, bias: Bias = "optional") -> Node:
        """`linear` with the rows `parts` of a weight of `rows` rows, in this order; without `parts`, with all rows."""
        stem = stem_of(name)
        weight = self.weight(name, rows, x.width, parts=parts)
        y = self._node("linear", _named(x, name, parts), (x.name, weight, "", ""), scale=1.0)
        if self.has(f"{stem}.scale") and f"{stem}.scale" not in self._tensors.taken:
            y = self.scale(y, self.number(f"{stem}.scale"))
        bias_name = f"{stem}.bias"
        if bias == "required" or self.has(bias_name):
            vector = self.weight(bias_name, rows, parts=tuple(replace(part, tensor=bias_name) for part in parts))
            y = self._of("add_bias", y, vector)
        return y

    def rope(self, x: Node, table: str, *, heads: int) -> Node:
        """Rotate the pairs of columns of each head: neighbours, or columns rot / 2 apart, as the table says."""
        rot, neox = self._tensors.tables[table].width, int(self._tensors.neox[table])
        return self._of("rope", x, "positions", table, heads=heads, rot=rot, neox=neox)

    def scale_by_position(self, x: Node, table: str) -> Node:
        return self._of("scale_by_position", x, "positions", table)

    def attend(
        self,
        w: Block,
        q: Node,
        k: Node,
        v: Node,
        *,
        scale: float = 0.0,
        chunked: bool = False,
        cap: float = 0.0,
        sinks: str = "",
        slopes: str = "",
    ) -> Node:
        """Store this step's keys and values in the layer's cache, then attend to it: a row to all positions up to its
        own, or those in its window; where the model is not causal, to its whole span, or a window around it. Without a
        scale that of the model."""
        self._store(w, k, v, self._states.cache(w, k, v))
        return self.attend_to(w.index, w, q, scale=scale, chunked=chunked, cap=cap, sinks=sinks, slopes=slopes)

    def attend_latent(self, w: Block, q: Node, k: Node, value_dim: int, *, scale: float) -> Node:
        """Store this step's rows, one for all heads, whose first columns are values too; then attend to them."""
        self._store(w, k, None, State(f"cache.{w.index}", (1, k.width, value_dim), latent=True))
        shared = replace(w, kv_heads=1, head_dim=k.width, value_dim=value_dim)
        return self.attend_to(w.index, shared, q, scale=scale)

    def attend_to(
        self,
        layer: int,
        w: Block,
        q: Node,
        *,
        scale: float = 0.0,
        chunked: bool = False,
        cap: float = 0.0,
        sinks: str = "",
        slopes: str = "",
    ) -> Node:
        """Attend to the cache of a layer: this one, or one before it with the same window and size of heads."""
        state, stored = self._states.cache_of(w, layer)
        vectors = tuple(self._tensors.vector(name, w.heads) if name else "" for name in (sinks, slopes))
        inputs, reach = (q.name, state.name, "spans", stored.name, *vectors), self._states.reach(w)
        return self._node(
            "attend", f"{self._prefix}attend", inputs, heads=w.heads, scale=scale or self._meta.attention_scale,
            window=reach, chunked=int(chunked and reach > 0), causal=int(self._meta.causal), cap=cap,
        )  # fmt: skip

    def conv(self, x: Node, name: str, taps: int) -> Node:
        """A convolution of each column over the last rows, with the bias that a file may have beside its taps."""
        weight = name if name in self._tensors.weights else self.flat(name, x.width, taps)
        bias = f"{stem_of(name)}.bias"
        tail = self._states.carry(f"{x.name}.tail", taps - 1, x.width)
        return self._of("conv", x, weight, self.weight(bias, x.width) if self.has(bias) else "", tail, "spans")

    def scan(
        self,
        heads: int,
        q: Node,
        k: Node,
        v: Node,
        decay: Node,
        *,
        keys: int,
        seen: Node | None = None,
        rate: Node | None = None,
        tiled: bool = False,
    ) -> Node:
        """A state matrix for each head, with a row for each of its `keys`: it decays, is written and read (op scan)."""
        state = self._states.carry(f"{self._prefix}matrices", heads, keys, v.width // heads)
        optional = tuple("" if x is None else x.name for x in (seen, rate))
        inputs = (q.name, k.name, v.name, decay.name, *optional, state, "spans")
        return self._node("scan", f"{self._prefix}scan", inputs, tiled=int(tiled))

    def selective_scan(self, x: Node, dt: Node, b: Node, c: Node, a: str) -> Node:
        state = self._states.carry(f"{self._prefix}vectors", b.width, x.width)
        rates = self.flat(a, x.width, b.width)
        inputs = (x.name, dt.name, b.name, c.name, rates, state, "spans")
        return self._node("selective_scan", f"{self._prefix}scan", inputs)

    def activate(self, x: Node, act: Activation) -> Node:
        return self._of(act, x)

    def add(self, x: Node, y: Node) -> Node:
        return self._node("add", f"{self._prefix}add", (x.name, y.name))

    def mul(self, x: Node, y: Node) -> Node:
        return self._node("mul", f"{self._prefix}mul", (x.name, y.name))

    def mul_vector(self, x: Node, name: str) -> Node:
        return self._of("mul_vector", x, self._tensors.vector(name, x.width))

    def add_row(self, x: Node, name: str, row: int) -> Node:
        """One row of a matrix of floats added to every row."""
        vector = self.flat(name, self.rows(name), x.width, row=row)
        return self._of("add_bias", x, vector)

    def add_vector(self, x: Node, name: str) -> Node:
        return self._of("add_bias", x, self.weight(name, x.width))

    def div_vector(self, x: Node, name: str) -> Node:
        return self._of("div_vector", x, self.weight(name, x.width))

    def scale_heads(self, x: Node, by: Node | str) -> Node:
        """Times one number for each head: from each row of a node, or from a vector that was taken."""
        return self._of("scale_heads", x, by)

    def head_sums(self, x: Node, *, heads: int) -> Node:
        return self._of("head_sums", x, heads=heads)

    def join(self, x: Node, y: Node, *, heads: int = 1) -> Node:
        return self._of("join", x, y, heads=heads)

    def scale(self, x: Node, by: float) -> Node:
        return x if by == 1.0 else self._of("scale", x, by=by)

    def divide(self, x: Node, by: float) -> Node:
        return x if by == 1.0 else self._of("divide", x, by=by)

    def add_scaled(self, x: Node, y: Node, by: Node) -> Node:
        return self._of("add_scaled", x, y, by)

    def rescale(self, x: Node, like: Node) -> Node:
        return self._of("rescale", x, like)

    def sparsify(self, x: Node, factor: float) -> Node:
        return self._of("sparsify", x, factor=factor)

    def clamp(self, x: Node, least: float, most: float) -> Node:
        return self._of("clamp", x, least=least, most=most)

    def soft_cap(self, x: Node, cap: float) -> Node:
        return x if cap == 0.0 else self._of("soft_cap", x, cap=cap)

    def xielu(self, x: Node, *, above: float, below: float, beta: float, eps: float) -> Node:
        return self._of("xielu", x, above=above, below=below, beta=beta, eps=eps)

    def clamped_gate(self, gate: Node, up: Node, *, alpha: float, limit: float) -> Node:
        return self._of("clamped_gate", gate, up, alpha=alpha, limit=limit)

    def softmax(self, x: Node) -> Node:
        return self._of("softmax", x)

    def normalize(self, x: Node, *, least: float) -> Node:
        return self._of("normalize", x, least=least)

    def top_experts(self, scores: Node, *, count: int, groups: int = 1, groups_used: int = 1) -> Node:
        chosen = {"count": count, "groups": groups, "groups_used": groups_used}
        return self._node("top_experts", f"{self._prefix}top_experts", (scores.name,), **chosen)

    def take_scores(self, scores: Node, ids: Node) -> Node:
        return self._of("take_scores", scores, ids)

    def expert_linear(
        self, x: Node, name: str, ids: Node, experts: int, width: int, *, first: int = 0, of: int = 0
    ) -> Node:
        """Products with the matrices of the chosen experts, or with `of` some rows of them, as `linear`; a row of x is
        the input of all of them, or has a piece for each."""
        k = x.width // ids.width if x.name in self._cut else x.width
        parts = pieces(name, first, width, of) if of else ()
        weight = self.weight(name, experts, of or width, k, parts=parts)
        return self._node("expert_linear", _named(x, name, parts), (x.name, weight, ids.name))

    def head_linear(
        self, x: Node, name: str, heads: int, width: int, *, first: int = 0, of: int = 0, transposed: bool = False
    ) -> Node:
        """Products of each head with its own matrix, or with `of` some rows of it; `transposed`: with its columns."""
        k = x.width // heads
        count, columns = (k, width) if transposed else (width, k)
        parts = pieces(name, first, count, of) if of else ()
        weight = self.weight(name, heads, of or count, columns, parts=parts)
        if transposed:
            weight = self._tensors.transpose(weight, heads, width, k)
        return self._node("expert_linear", _named(x, name, parts), (x.name, weight, ""))

    def expert_bias(self, x: Node, name: str, ids: Node, experts: int) -> Node:
        bias = self.flat(name, experts, x.width // ids.width)
        return self._of("expert_bias", x, bias, ids)

    def expert_scale(self, x: Node, name: str, ids: Node, experts: int) -> Node:
        return self._of("expert_scale", x, self.weight(name, experts), ids)

    def expert_inputs(self, x: Node, weights: Node) -> Node:
        return self._of("expert_inputs", x, weights)

    def expert_sum(self, x: Node, weights: Node | None, *, count: int) -> Node:
        """The `count` pieces of a row added, each times its weight."""
        return self._of("expert_sum", x, "" if weights is None else weights, count=count)

    def slice(self, x: Node, first: int, count: int) -> Node:
        return self._of("slice", x, first=first, count=count)

    def take(self, x: Node) -> Node:
        return self._node("take", "take", (x.name, "want"))

    def mean_pool(self, x: Node) -> Node:
        return self._node("mean_pool", "mean_pool", (x.name, "spans"))

    def first_row(self, x: Node) -> Node:
        return self._node("first_row", "first_row", (x.name, "spans"))

    # Layers and outputs.

    def blocks(self, windows: Sequence[int] = (), *, prefix: str = "") -> Iterator[Block]:
        """Layer after layer, with the window of each; prefix: of the names of their weights."""
        for index in range(self._meta.layers):
            yield self.block(index, window=windows[index] if windows else 0, prefix=prefix)

    def block(self, index: int, *, window: int = 0, head_dim: int = 0, value_dim: int = 0, prefix: str = "") -> Block:
        """Begin a layer, whose heads may have another size than the model's."""
        self._prefix = f"{prefix}blk.{index}."
        return self._meta.block(index, window, head_dim, value_dim, prefix)

    def output(self, name: str, x: Node) -> None:
        """Make a node the output of this name."""
        self._outputs[name] = x.name

    def logits(self, x: Node) -> None:
        """Make a node the logits, which are the first output of a graph that has them."""
        self._outputs = {"logits": x.name} | self._outputs

    def finish(self) -> Graph:
        """The checked graph; every tensor of the file must have been taken, but those of draft layers, which are left
        out."""
        m = self._meta
        left_out = tuple(f"blk.{index}." for index in range(m.layers, m.layers + m.drafts))
        self._tensors.refuse_left(left_out, f"a {m.architecture} model of {m.layers} layers")
        m.keys.refuse_unread(m.context)
        if "logits" in self._outputs and not m.causal:
            raise m.keys.unsupported("attention.causal", False, "a token that is still to come cannot be seen")
        experts = m.keys.get("expert_count")
        has_experts = any(".ffn_gate_inp." in name for name in self._tensors.taken)
        m.keys.need(not experts or has_experts, "expert_count", experts, "0: no layer has experts")
        nodes, taken = tuple(self._nodes.values()), self._tensors
        return check(Graph(nodes, taken.weights, self._states.states, taken.tables, self._outputs, m))

    def _store(self, w: Block, k: Node, v: Node | None, state: State) -> None:
        self._states.states[state.name] = state
        inputs = (k.name, v.name if v is not None else "", state.name, "spans")
        self._states.stores[w.index] = self._node("store", f"{self._prefix}store", inputs)

    def _norm_weight(self, x: Node, name: str, heads: int) -> str:
        """The weights of a norm: one vector for all heads, or one for each, as the file has it."""
        if not name:
            return ""
        each = (heads, x.width // heads)
        if heads > 1 and self.shape(name) == (x.width,):
            return self.weight(name, x.width)
        return self.flat(name, *each) if heads > 1 and self.shape(name) == each else self.weight(name, each[1])

    def _biased(self, x: Node, name: str, width: int) -> Node:
        bias = f"{stem_of(name)}.bias"
        return self._of("add_bias", x, self.weight(bias, width)) if self.has(bias) else x

    def _of(self, op: str, x: Node, *others: Node | str, **attrs: int | float) -> Node:
        """A node that is called by its first operand and its op."""
        inputs = (x.name, *(other if isinstance(other, str) else other.name for other in others))
        return self._node(op, f"{x.name}.{op}", inputs, **attrs)

    def _node(self, op: str, name: str, inputs: tuple[str, ...], **attrs: int | float) -> Node:
        operands = [self._operand(i) if i else None for i in inputs]
        rows, width, dtype = OPS[op].shape(operands, attrs)
        unique, number = name, 2
        while unique in self._nodes:
            unique, number = f"{name}.{number}", number + 1
        node = Node(unique, op, inputs, attrs, rows, width, dtype)
        self._nodes[unique] = node
        by_experts = op == "expert_inputs" or (op == "expert_linear" and inputs[2] != "")
        if by_experts or (op != "expert_sum" and inputs[0] in self._cut):
            self._cut.add(unique)
        return node

    def _operand(self, name: str) -> Operand:
        groups: tuple[Mapping[str, Operand], ...] = (
            INPUTS, self._nodes, self._tensors.weights, self._states.states, self._tensors.tables,
        )  # fmt: skip
        return next(group[name] for group in groups if name in group)


def _named(x: Node, name: str, parts: RowRanges = ()) -> str:
    """The name of a node: that of its weight; of a norm without one, that of its input."""
    if not name.endswith(".weight"):
        return f"{name or x.name}.norm"
    return f"{stem_of(name)}{rows_of(parts) if parts else ''}"
