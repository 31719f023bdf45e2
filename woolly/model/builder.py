"""Builder: what a family writes its graph with.

Methods are named after ops and return nodes. A weight is taken by name together with the shape the graph expects; the
file must have it in that shape. `finish` refuses a file with a tensor that was not taken: its model is another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from woolly.errors import FileError, UnsupportedError, printable
from woolly.gguf import GgufFile
from woolly.gguf.tensor_types import FORMATS
from woolly.model.graph import Graph, check
from woolly.model.meta import Meta, missing_tensor
from woolly.model.operands import INPUTS, Node, Operand, Rows, State, Weight
from woolly.model.ops.numerics import F32
from woolly.model.ops.registry import OPS
from woolly.model.tables import RopeTable, Table

RowRanges = tuple[Rows, ...]
Bias = Literal["optional", "required"]
Activation = Literal["silu", "gelu", "relu", "relu2", "sigmoid", "tanh", "exp", "softplus"]


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: its sizes, and the names of its weights: `block.attn_q` is "blk.{i}.attn_q.weight", behind a prefix in
    some files."""

    index: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    ffn: int
    window: int  # 0: all positions are seen
    prefix: str = ""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return f"{self.prefix}blk.{self.index}.{name}.weight"


class Builder:
    """Writes one graph for one file, whose sequences have at most `context` positions."""

    def __init__(self, meta: Meta, file: GgufFile, context: int) -> None:
        self.width = meta.width
        self._meta = meta
        self._file = file
        self._context = context
        self._where = printable(file.path.name)
        self._nodes: dict[str, Node] = {}
        self._weights: dict[str, Weight] = {}
        self._states: dict[str, State] = {}
        self._tables: dict[str, Table] = {}
        self._neox: dict[str, bool] = {}  # by rotary table: whether the two columns of a pair are rot / 2 apart
        self._stores: dict[int, Node] = {}  # the store node of each layer
        self._taken: set[str] = set()
        self._cut: set[str] = set()  # nodes whose rows have a piece for each expert
        self._prefix = ""
        self._outputs: dict[str, str] = {}

    # Ops.

    def embed(self, name: str = "token_embd.weight", width: int = 0) -> Node:
        weight = self.weight(name, self._meta.vocab, width or self.width)
        return self._node("embed", _stem(name), ("tokens", weight))

    def embed_positions(self, name: str) -> Node:
        """A learned row for each position: a context cannot be longer than there are rows."""
        rows = self.rows(name)
        if rows < self._context:
            raise FileError(
                f"{self._where}: tensor {name} has {rows} positions, but the context is {self._context:,}",
                suggestion=f"ask for a context of at most {rows:,}",
                tensor=name,
            )
        return self._node("embed_positions", _stem(name), ("positions", self.weight(name, rows, self.width)))

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
        bias = f"{_stem(name)}.bias"
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
        stem = _stem(name)
        weight = self.weight(name, rows, x.width, parts=parts)
        y = self._node("linear", _named(x, name, parts), (x.name, weight, "", ""), scale=1.0)
        if self.has(f"{stem}.scale") and f"{stem}.scale" not in self._taken:
            y = self.scale(y, self.number(f"{stem}.scale"))
        bias_name = f"{stem}.bias"
        if bias == "required" or self.has(bias_name):
            vector = self.weight(bias_name, rows, parts=tuple(replace(part, tensor=bias_name) for part in parts))
            y = self._node("add_bias", f"{y.name}.add_bias", (y.name, vector))
        return y

    def rope(self, x: Node, table: str, *, heads: int) -> Node:
        """Rotate the pairs of columns of each head: neighbours, or columns rot / 2 apart, as the table says."""
        rot = self._tables[table].width
        inputs = (x.name, "positions", table)
        return self._node("rope", f"{x.name}.rope", inputs, heads=heads, rot=rot, neox=int(self._neox[table]))

    def scale_by_position(self, x: Node, table: str) -> Node:
        return self._node("scale_by_position", f"{x.name}.scale_by_position", (x.name, "positions", table))

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
        self._store(w, k, v, self._cache(w, _sizes(k, v, w)))
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
        state = self._states[self._stores[layer].inputs[2]] if layer in self._stores else None
        if state is None or (state.window, state.dim) != (self._cache_window(w), w.head_dim) or w.heads % state.heads:
            raise FileError(
                f"{self._where}: layer {w.index} has no keys, and layer {layer} none that it could use",
                suggestion="the file was made wrongly: get another one",
            )
        vectors = tuple(
            self.weight(name, w.heads) if name and name not in self._weights else name for name in (sinks, slopes)
        )
        inputs = (q.name, state.name, "spans", self._stores[layer].name, *vectors)
        return self._node(
            "attend", f"{self._prefix}attend", inputs, heads=w.heads, scale=scale or self._meta.attention_scale,
            window=self._reach(w), chunked=int(chunked and self._reach(w) > 0), causal=int(self._meta.causal), cap=cap,
        )  # fmt: skip

    def conv(self, x: Node, name: str, taps: int) -> Node:
        """A convolution of each column over the last rows, with the bias that a file may have beside its taps."""
        weight = name if name in self._weights else self.flat(name, x.width, taps)
        bias = f"{_stem(name)}.bias"
        tail = self._carry(f"{x.name}.tail", taps - 1, x.width)
        inputs = (x.name, weight, self.weight(bias, x.width) if self.has(bias) else "", tail, "spans")
        return self._node("conv", f"{x.name}.conv", inputs)

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
        state = self._carry(f"{self._prefix}matrices", heads, keys, v.width // heads)
        optional = tuple("" if x is None else x.name for x in (seen, rate))
        inputs = (q.name, k.name, v.name, decay.name, *optional, state, "spans")
        return self._node("scan", f"{self._prefix}scan", inputs, tiled=int(tiled))

    def selective_scan(self, x: Node, dt: Node, b: Node, c: Node, a: str) -> Node:
        state = self._carry(f"{self._prefix}vectors", b.width, x.width)
        rates = self.flat(a, x.width, b.width)
        inputs = (x.name, dt.name, b.name, c.name, rates, state, "spans")
        return self._node("selective_scan", f"{self._prefix}scan", inputs)

    def activate(self, x: Node, act: Activation) -> Node:
        return self._node(act, f"{x.name}.{act}", (x.name,))

    def add(self, x: Node, y: Node) -> Node:
        return self._node("add", f"{self._prefix}add", (x.name, y.name))

    def mul(self, x: Node, y: Node) -> Node:
        return self._node("mul", f"{self._prefix}mul", (x.name, y.name))

    def mul_vector(self, x: Node, name: str) -> Node:
        weight = name if name in self._weights else self.weight(name, x.width)
        return self._node("mul_vector", f"{x.name}.mul_vector", (x.name, weight))

    def add_row(self, x: Node, name: str, row: int) -> Node:
        """One row of a matrix of floats added to every row."""
        vector = self.flat(name, self.rows(name), x.width, row=row)
        return self._node("add_bias", f"{x.name}.add_bias", (x.name, vector))

    def add_vector(self, x: Node, name: str) -> Node:
        return self._node("add_bias", f"{x.name}.add_bias", (x.name, self.weight(name, x.width)))

    def div_vector(self, x: Node, name: str) -> Node:
        return self._node("div_vector", f"{x.name}.div_vector", (x.name, self.weight(name, x.width)))

    def scale_heads(self, x: Node, by: Node | str) -> Node:
        """Times one number for each head: from each row of a node, or from a vector that was taken."""
        return self._node("scale_heads", f"{x.name}.scale_heads", (x.name, by if isinstance(by, str) else by.name))

    def head_sums(self, x: Node, *, heads: int) -> Node:
        return self._node("head_sums", f"{x.name}.head_sums", (x.name,), heads=heads)

    def join(self, x: Node, y: Node, *, heads: int = 1) -> Node:
        return self._node("join", f"{x.name}.join", (x.name, y.name), heads=heads)

    def scale(self, x: Node, by: float) -> Node:
        return x if by == 1.0 else self._node("scale", f"{x.name}.scale", (x.name,), by=by)

    def divide(self, x: Node, by: float) -> Node:
        return x if by == 1.0 else self._node("divide", f"{x.name}.divide", (x.name,), by=by)

    def add_scaled(self, x: Node, y: Node, by: Node) -> Node:
        return self._node("add_scaled", f"{x.name}.add_scaled", (x.name, y.name, by.name))

    def rescale(self, x: Node, like: Node) -> Node:
        return self._node("rescale", f"{x.name}.rescale", (x.name, like.name))

    def sparsify(self, x: Node, factor: float) -> Node:
        return self._node("sparsify", f"{x.name}.sparsify", (x.name,), factor=factor)

    def clamp(self, x: Node, least: float, most: float) -> Node:
        return self._node("clamp", f"{x.name}.clamp", (x.name,), least=least, most=most)

    def soft_cap(self, x: Node, cap: float) -> Node:
        return x if cap == 0.0 else self._node("soft_cap", f"{x.name}.soft_cap", (x.name,), cap=cap)

    def xielu(self, x: Node, *, above: float, below: float, beta: float, eps: float) -> Node:
        return self._node("xielu", f"{x.name}.xielu", (x.name,), above=above, below=below, beta=beta, eps=eps)

    def clamped_gate(self, gate: Node, up: Node, *, alpha: float, limit: float) -> Node:
        inputs = (gate.name, up.name)
        return self._node("clamped_gate", f"{gate.name}.clamped_gate", inputs, alpha=alpha, limit=limit)

    def softmax(self, x: Node) -> Node:
        return self._node("softmax", f"{x.name}.softmax", (x.name,))

    def normalize(self, x: Node, *, least: float) -> Node:
        return self._node("normalize", f"{x.name}.normalize", (x.name,), least=least)

    def top_experts(self, scores: Node, *, count: int, groups: int = 1, groups_used: int = 1) -> Node:
        chosen = {"count": count, "groups": groups, "groups_used": groups_used}
        return self._node("top_experts", f"{self._prefix}top_experts", (scores.name,), **chosen)

    def take_scores(self, scores: Node, ids: Node) -> Node:
        return self._node("take_scores", f"{scores.name}.take_scores", (scores.name, ids.name))

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
            columns_of = self._weights.pop(weight)
            weight = f"{weight} transposed"
            self._weights[weight] = Weight(weight, (heads, width, k), "F32", columns_of.rows, transposed=True)
        return self._node("expert_linear", _named(x, name, parts), (x.name, weight, ""))

    def expert_bias(self, x: Node, name: str, ids: Node, experts: int) -> Node:
        bias = self.flat(name, experts, x.width // ids.width)
        return self._node("expert_bias", f"{x.name}.expert_bias", (x.name, bias, ids.name))

    def expert_scale(self, x: Node, name: str, ids: Node, experts: int) -> Node:
        return self._node("expert_scale", f"{x.name}.expert_scale", (x.name, self.weight(name, experts), ids.name))

    def expert_inputs(self, x: Node, weights: Node) -> Node:
        return self._node("expert_inputs", f"{x.name}.expert_inputs", (x.name, weights.name))

    def expert_sum(self, x: Node, weights: Node | None, *, count: int) -> Node:
        """The `count` pieces of a row added, each times its weight."""
        inputs = (x.name, weights.name if weights is not None else "")
        return self._node("expert_sum", f"{x.name}.expert_sum", inputs, count=count)

    def slice(self, x: Node, first: int, count: int) -> Node:
        return self._node("slice", f"{x.name}.slice", (x.name,), first=first, count=count)

    def take(self, x: Node) -> Node:
        return self._node("take", "take", (x.name, "want"))

    def mean_pool(self, x: Node) -> Node:
        return self._node("mean_pool", "mean_pool", (x.name, "spans"))

    def first_row(self, x: Node) -> Node:
        return self._node("first_row", "first_row", (x.name, "spans"))

    # Operands.

    def blocks(self, windows: Sequence[int] = (), *, prefix: str = "") -> Iterator[Block]:
        """Layer after layer, with the window of each; prefix: of the names of their weights."""
        for index in range(self._meta.layers):
            yield self.block(index, window=windows[index] if windows else 0, prefix=prefix)

    def block(self, index: int, *, window: int = 0, head_dim: int = 0, value_dim: int = 0, prefix: str = "") -> Block:
        """Begin a layer, whose heads may have another size than the model's."""
        m = self._meta
        self._prefix = f"{prefix}blk.{index}."
        return Block(
            index,
            m.heads[index],
            m.kv_heads[index],
            head_dim or m.head_dim,
            value_dim or m.value_dim,
            m.ffn[index],
            window,
            prefix,
        )

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self._file.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor that the file must have."""
        if name not in self._file.tensors:
            raise missing_tensor(self._file, name)
        return self._file.tensors[name].shape

    def rows(self, name: str) -> int:
        """The rows of a matrix, or of each expert's, that the file must have."""
        shape = self.shape(name)
        if len(shape) < 2:
            raise FileError(f"{self._where}: tensor {name} is {_by(shape)}, but a matrix is expected", tensor=name)
        return shape[-2]

    def weight(self, name: str, *shape: int, parts: RowRanges = ()) -> str:
        """Take a tensor of the file, which must have this shape: (experts, rows, k), (rows, k), or (n,) for a vector of
        floats; where `parts` are given, these rows of it, or of each expert."""
        info = self._file.tensors.get(name)
        if info is None:
            raise missing_tensor(self._file, name)
        same = info.shape in (shape, (1, *shape)) or (1, *info.shape) == shape
        if not same and parts and len(shape) > 1:  # the rows of several matrices, one after the other
            same = info.shape[-1] == shape[-1] and math.prod(info.shape) == math.prod(shape)
        if not same:
            actual, expected = _by(info.shape), _by(shape)
            raise FileError(f"{self._where}: tensor {name} is {actual}, but {expected} is expected", tensor=name)
        if len(shape) == 1:
            self._need_floats(name, info.format)
        self._taken.add(name)
        if not parts:
            self._weights[name] = Weight(name, shape, info.format)
            return name
        some = f"{name}{_rows_of(parts)}"
        axis, count = max(len(shape) - 2, 0), sum(part.count for part in parts)
        self._weights[some] = Weight(some, (*shape[:axis], count, *shape[axis + 1 :]), info.format, parts)
        return some

    def flat(self, name: str, *shape: int, row: int | None = None) -> str:
        """Take a tensor of floats of several dimensions as one vector, or a row of it; dimensions of 1 do not count."""
        info = self._file.tensors.get(name)
        if info is None or _wide(info.shape) != _wide(shape):
            return self.weight(name, *shape)  # raises the error that names the fault
        self._need_floats(name, info.format)
        self._taken.add(name)
        n = math.prod(shape) if row is None else shape[-1]
        vector = name if row is None else f"{name}[{row}]"
        self._weights[vector] = Weight(vector, (n,), info.format, (Rows(name, (row or 0) * n, n),))
        return vector

    def _need_floats(self, name: str, format: str) -> None:
        if not FORMATS[format].is_float:
            raise UnsupportedError(
                f"{self._where}: tensor {name} is a vector of type {format}; F32, F16 and BF16 are supported",
                tensor=name,
            )

    def pass_over(self, *names: str) -> None:
        """Tensors that files may carry and that no result depends on."""
        self._taken.update(names)

    def constant(self, name: str, values: Sequence[float]) -> str:
        """A vector that is in no file."""
        self._weights[name] = Weight(name, (len(values),), "F32", values=tuple(values))
        return name

    def table(self, name: str, table: Table) -> str:
        self._tables[name] = table
        return name

    def rope_table(self, rope: RopeTable, *, neox: bool, pairs: int = 0) -> str:
        """The rotary table, with the file's factors for the angles; where these are for `pairs` pairs, the first ones.
        Factors for a long context are used where the context exceeds the one before scaling."""
        long = self._context > rope.original
        for name, used in (("rope_freqs", True), ("rope_factors_long", long), ("rope_factors_short", not long)):
            if self.has(f"{name}.weight"):
                factors = self._factors(f"{name}.weight", pairs or rope.rot // 2)[: rope.rot // 2]
                rope = replace(rope, factors=factors) if used else rope
        self._neox["rope"] = neox
        return self.table("rope", rope)

    def local_rope_table(self, rope: RopeTable, *, neox: bool) -> str:
        """A second rotary table, for the layers with a window; no factors of the file go into it."""
        self._neox["rope.local"] = neox
        return self.table("rope.local", rope)

    def output(self, name: str, x: Node) -> None:
        """Make a node the output of this name."""
        self._outputs[name] = x.name

    def logits(self, x: Node) -> None:
        """Make a node the logits, which are the first output of a graph that has them."""
        self._outputs = {"logits": x.name} | self._outputs

    def finish(self) -> Graph:
        """The checked graph; every tensor of the file must have been taken, but those of draft layers, which are left
        out, and `.input_scale`, by which other engines quantise inputs."""
        m = self._meta
        left_out = tuple(f"blk.{index}." for index in range(m.layers, m.layers + m.drafts))
        for name in self._file.tensors:
            if name not in self._taken and not name.startswith(left_out) and not name.endswith(".input_scale"):
                raise FileError(
                    f"{self._where}: tensor {printable(name)} is no part of a {m.architecture} model "
                    f"of {m.layers} layers",
                    suggestion="ignoring it would give another model's answers: use a file made for this family",
                    tensor=name,
                )
        m.keys.refuse_unread(m.context)
        if "logits" in self._outputs and not m.causal:
            raise m.keys.unsupported("attention.causal", False, "a token that is still to come cannot be seen")
        experts = m.keys.get("expert_count")
        has_experts = any(".ffn_gate_inp." in name for name in self._taken)
        m.keys.need(not experts or has_experts, "expert_count", experts, "0: no layer has experts")
        nodes = tuple(self._nodes.values())
        return check(Graph(nodes, self._weights, self._states, self._tables, self._outputs, m))

    def _store(self, w: Block, k: Node, v: Node | None, state: State) -> None:
        self._states[state.name] = state
        inputs = (k.name, v.name if v is not None else "", state.name, "spans")
        self._stores[w.index] = self._node("store", f"{self._prefix}store", inputs)

    def _carry(self, name: str, *shape: int) -> str:
        self._states[name] = State(name, shape, kind="carry")
        return name

    def _reach(self, w: Block) -> int:
        """The window of a layer; 0 for one as long as the context, which hides nothing."""
        return w.window if w.window < self._meta.context else 0

    def _cache_window(self, w: Block) -> int:
        """The window of a layer's cache; 0 in a model that is not causal, because all that a row sees is in its
        step."""
        return self._reach(w) if self._meta.causal else 0

    def _cache(self, w: Block, shape: tuple[int, ...]) -> State:
        """A layer's own cache; in a model that is not causal, all layers of one shape share one."""
        shared = () if self._meta.causal else self._states.values()
        state = State(f"cache.{w.index}", shape, window=self._cache_window(w))
        return next((each for each in shared if each.shape == shape), state)

    def _norm_weight(self, x: Node, name: str, heads: int) -> str:
        """The weights of a norm: one vector for all heads, or one for each, as the file has it."""
        if not name:
            return ""
        each = (heads, x.width // heads)
        if heads > 1 and self.shape(name) == (x.width,):
            return self.weight(name, x.width)
        return self.flat(name, *each) if heads > 1 and self.shape(name) == each else self.weight(name, each[1])

    def _biased(self, x: Node, name: str, width: int) -> Node:
        bias = f"{_stem(name)}.bias"
        return self._node("add_bias", f"{x.name}.add_bias", (x.name, self.weight(bias, width))) if self.has(bias) else x

    def values(self, name: str, *shape: int) -> F32:
        """The numbers of a short tensor that go into the graph itself: no op reads the tensor."""
        values = self._values(name, *shape)
        if not np.isfinite(values).all():
            raise FileError(f"{self._where}: tensor {name} holds a value that is not finite", tensor=name)
        return values

    def _values(self, name: str, *shape: int) -> F32:
        self.weight(name, *shape)
        weight = self._weights.pop(name)
        raw = np.frombuffer(self._file.data(name), np.uint8).reshape(-1, FORMATS[weight.format].row_bytes(shape[-1]))
        values: F32 = FORMATS[weight.format].decode(raw, shape[-1]).reshape(shape)
        return values

    def _factors(self, name: str, n: int) -> tuple[float, ...]:
        factors = self._values(name, n)
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise FileError(f"{self._where}: tensor {name} has a factor that is not above 0", tensor=name)
        return tuple(factors.tolist())

    def number(self, name: str) -> float:
        """The one number of a tensor, as a constant of the graph."""
        return float(self.values(name, 1)[0])

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
            INPUTS, self._nodes, self._weights, self._states, self._tables,
        )  # fmt: skip
        return next(group[name] for group in groups if name in group)


def _sizes(k: Node, v: Node, w: Block) -> tuple[int, ...]:
    """The shape of a cache of these keys and values."""
    dim, value_dim = k.width // w.kv_heads, v.width // w.kv_heads
    return (w.kv_heads, dim) if dim == value_dim else (w.kv_heads, dim, value_dim)


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def pieces(name: str, first: int, count: int, of: int, heads: int = 1) -> RowRanges:
    """Of several heads with `of` rows each, `count` rows of each head, from `first` on."""
    return tuple(Rows(name, head * of + first, count) for head in range(heads))


def _rows_of(parts: RowRanges) -> str:
    """The rows as text, for a name; of several parts the rows of the first, and "..."."""
    return f"[{parts[0].first}:{parts[0].first + parts[0].count}{', ...' if len(parts) > 1 else ''}]"


def _named(x: Node, name: str, parts: RowRanges = ()) -> str:
    """The name of a node: that of its weight; of a norm without one, that of its input."""
    if not name.endswith(".weight"):
        return f"{name or x.name}.norm"
    return f"{_stem(name)}{_rows_of(parts) if parts else ''}"


def _wide(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n > 1)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(f"{n}" for n in shape)
