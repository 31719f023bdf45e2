"""Small graphs made by hand, with a file of random weights for them: one op at a time, or a few."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from woolly import gguf
from woolly.device import DEVICES, Batch, Device
from woolly.gguf.tensor_types import FORMATS
from woolly.model import INPUTS, OPS, Graph, Keys, Meta, Node, Reference, RopeTable, Rows, State, Table, Weight, check
from woolly.plan import Bounds
from woolly.plan.lower import lower
from woolly.plan.memory import place

CPU = DEVICES["cpu"]
SETS = [(device, isa) for device in DEVICES.values() for isa in device.sets]  # every instruction set of every device
every_set = pytest.mark.parametrize(("device", "isa"), SETS, ids=[f"{device.name}-{isa}" for device, isa in SETS])

VALUES = ("ordinary", "tiny", "huge")
SANITIZED = "ASAN_OPTIONS" in os.environ  # tools/sanitize.sh sets it


class Sketch:
    """Write a graph node by node. Activations come from embeddings, so the tokens of a step choose their rows."""

    def __init__(self, vocab: int, *, seed: int = 1, values: str = "ordinary") -> None:
        self.vocab, self.values = vocab, values
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
        self.nodes: dict[str, Node] = {}
        self.weights: dict[str, Weight] = {}
        self.states: dict[str, State] = {}
        self.tables: dict[str, Table] = {}

    def matrix(self, rows: int, k: int, format: str) -> str:
        x = self.random.standard_normal((rows, k)).astype(np.float32)
        return self._weight(f"matrix{len(self.tensors)}", (rows, k), format, FORMATS[format].encode(x))

    def pair(self, rows: int, k: int, format: str) -> str:
        """Gate and up as one weight."""
        parts = self.matrix(rows, k, format), self.matrix(rows, k, format)
        each = tuple(Rows(part, 0, rows) for part in parts)
        both = Weight("+".join(parts), (2 * rows, k), format, each, alternate=True)
        for part in parts:
            del self.weights[part]
        self.weights[both.name] = both
        return both.name

    def experts(self, count: int, rows: int, k: int, format: str) -> str:
        """Expert matrices of one shape in one tensor."""
        x = self.random.standard_normal((count * rows, k)).astype(np.float32)
        return self._weight(f"experts{len(self.tensors)}", (count, rows, k), format, FORMATS[format].encode(x))

    def columns(self, count: int, rows: int, k: int, format: str) -> str:
        """Transposed matrices: each is a range of rows of a matrix in a tensor, its columns read as rows."""
        name = self.experts(count, k + 5, rows, format)
        del self.weights[name]
        self.weights[name] = Weight(name, (count, rows, k), "F32", (Rows(name, 3, k),), transposed=True)
        return name

    def expert_pair(self, count: int, rows: int, k: int, format: str) -> str:
        """Gate and up of experts as one weight."""
        parts = self.experts(count, rows, k, format), self.experts(count, rows, k, format)
        each = tuple(Rows(part, 0, rows) for part in parts)
        both = Weight("+".join(parts), (count, 2 * rows, k), format, each, alternate=True)
        for part in parts:
            del self.weights[part]
        self.weights[both.name] = both
        return both.name

    def vector(self, n: int) -> str:
        x = self.random.standard_normal((1, n)).astype(np.float32)
        return self._weight(f"vector{len(self.tensors)}", (n,), "F32", x)

    def rows(self, width: int) -> str:
        """Activations: some rows ordinary, some with zeros; all small or all large where `values` says so."""
        x = self.random.standard_normal((self.vocab, width)) * np.exp(self.random.standard_normal((self.vocab, width)))
        x *= {"ordinary": 1.0, "tiny": 1e-38, "huge": 3e37}[self.values]
        x[self.random.random(x.shape) < 0.1] = 0.0
        x[:: max(2, self.vocab // 3)] = 0.0
        with np.errstate(over="ignore"):
            y = np.clip(x, -3e38, 3e38).astype(np.float32)
        return self.node("embed", "tokens", self._weight(f"rows{len(self.tensors)}", y.shape, "F32", y))

    def state(
        self, heads: int, dim: int, dtype: str, *, window: int = 0, value_dim: int = 0, latent: bool = False
    ) -> str:
        name = f"cache.{len(self.states)}"
        shape = (heads, dim, value_dim or dim)
        self.states[name] = State(name, shape, dtype=dtype, window=window, latent=latent)
        return name

    def carry(self, *shape: int) -> str:
        name = f"carry.{len(self.states)}"
        self.states[name] = State(name, shape, kind="carry")
        return name

    def expert_layer(self, width: int, ffn: int, format: str, *, experts: int, count: int, down: str = "") -> str:
        """A layer of experts as families write it, with its residual."""
        x = self.rows(width)
        h = self.node("rms_norm", x, self.vector(width), eps=1e-5, heads=1)
        router = self.node("linear", h, self.matrix(experts, width, "F32"), "", "", scale=1.0)
        scores = self.node("softmax", router)
        ids = self.node("top_experts", scores, count=count, groups=1, groups_used=1)
        weights = self.node("normalize", self.node("take_scores", scores, ids), least=6e-5)
        gate = self.node("silu", self.node("expert_linear", h, self.experts(experts, ffn, width, format), ids))
        up = self.node("expert_linear", h, self.experts(experts, ffn, width, format), ids)
        inner = self.node("mul", gate, up)
        y = self.node("expert_linear", inner, self.experts(experts, width, ffn, down or format), ids)
        return self.node("add", x, self.node("expert_sum", y, weights, count=count))

    def table(self, table: Table) -> str:
        name = f"table.{len(self.tables)}"
        self.tables[name] = table
        return name

    def node(self, op: str, *inputs: str, **attrs: int | float) -> str:
        known = {**INPUTS, **self.nodes, **self.weights, **self.states, **self.tables}
        rows, width, dtype = OPS[op].shape([known[i] if i else None for i in inputs], attrs)
        name = f"{op}{len(self.nodes)}"
        self.nodes[name] = Node(name, op, inputs, attrs, rows, width, dtype)
        return name

    def graph(self, name: str) -> Graph:
        """The graph whose logits are this node's rows, or a product with them where the width is not the vocabulary;
        rows of spans are the output as they are."""
        if self.nodes[name].dtype != "f32":
            name = self.node("linear", name, self.matrix(self.vocab, self.nodes[name].width, "Q4_1"), "", "", scale=1.0)
        output = "embedding" if self.nodes[name].rows == "spans" else "logits"
        if self.nodes[name].rows == "rows":
            name = self.node("take", name, "want")
        if output == "logits" and self.nodes[name].width != self.vocab:
            name = self.node("linear", name, self.matrix(self.vocab, self.nodes[name].width, "F32"), "", "", scale=1.0)
        keys, rope = Keys("sketch", "sketch", {}), RopeTable(10000.0, 2)
        meta = Meta("sketch", 1, 1, self.vocab, 4096, (1,), (1,), (1,), 2, 2, rope, keys)
        nodes = tuple(self.nodes.values())
        return check(Graph(nodes, self.weights, self.states, self.tables, {output: name}, meta))

    def file(self, folder: Path) -> gguf.GgufFile:
        path = folder / "sketch.gguf"
        gguf.write(path, {"general.architecture": "sketch"}, self.tensors)
        return gguf.open(path)

    def _weight(self, name: str, shape: tuple[int, ...], format: str, raw: NDArray[np.generic]) -> str:
        self.tensors[name] = (format, shape, raw.tobytes())
        self.weights[name] = Weight(name, shape, format)
        return name


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a few sequences: each step is (sequence, tokens) pairs."""

    steps: Sequence[Sequence[tuple[int, Sequence[int]]]]

    def sequences(self) -> int:
        return 1 + max(s for step in self.steps for s, _ in step)

    def rows(self) -> int:
        return max(sum(len(tokens) for _, tokens in step) for step in self.steps)

    def batches(self) -> list[tuple[list[int], list[list[int]], list[int]]]:
        """(tokens, spans, ids) of each step."""
        known: dict[int, int] = {}
        out = []
        for step in self.steps:
            tokens: list[int] = []
            spans, ids = [], []
            for sequence, more in step:
                spans.append([len(tokens), len(more), known.get(sequence, 0)])
                known[sequence] = known.get(sequence, 0) + len(more)
                tokens += more
                ids.append(sequence)
            out.append((tokens, spans, ids))
        return out

    def context(self) -> int:
        return max(first + count for _, spans, _ in self.batches() for _, count, first in spans)


def reference_outputs(graph: Graph, file: gguf.GgufFile, steps: Steps) -> NDArray[np.float32]:
    """The output of the graph for all steps, concatenated."""
    reference, [name] = Reference(graph, file), graph.outputs
    return np.concatenate(
        [reference.outputs(t, spans, np.arange(len(t)), ids=ids)[name] for t, spans, ids in steps.batches()]
    )


def native_outputs(
    graph: Graph, file: gguf.GgufFile, steps: Steps, *, device: Device = CPU, isa: str, threads: int = 2
) -> NDArray[np.float32]:
    """The graph as it stands, without a pass, on a device; pages are handed out in random order, and
    none is given for positions behind a window."""
    bounds = Bounds(steps.rows(), steps.rows(), steps.sequences(), steps.context())
    program = lower(graph, place(graph, bounds), device.target, bounds)
    each = -(-bounds.context // device.target.page)
    table = np.random.default_rng(5).permutation(each * bounds.sequences).astype(np.int32).reshape(-1, each)
    runner = device.runner(program, file, threads=threads, pages=[table.size] * len(program.groups), isa=isa)
    [name] = graph.outputs
    out = []
    for tokens, spans, ids in steps.batches():
        cuts = [[*span, id_ if program.slot_bytes else -1, 0] for span, id_ in zip(spans, ids, strict=True)]
        pages = np.tile(table[ids], (len(program.groups), 1, 1))
        for group, own in zip(program.groups, pages, strict=True):
            for row, (_, _, first) in zip(own, spans, strict=True):
                row[: max(first + 1 - group.window, 0) // device.target.page if group.window else 0] = -1
        all_rows = np.arange(len(tokens), dtype=np.int32)
        batch = Batch(np.array(tokens, np.int32), np.array(cuts, np.int32), pages, all_rows)
        outputs = runner.run(runner.batch.put(batch))
        assert outputs is not None
        out.append(outputs[name][: len(tokens) if name == "logits" else len(spans)].copy())
    return np.concatenate(out)


def assert_same_bits(actual: NDArray[np.float32], expected: NDArray[np.float32], what: object = "") -> None:
    """Equal to the bit; a NaN equals a NaN."""
    same = (actual.view(np.int32) == expected.view(np.int32)) | (np.isnan(actual) & np.isnan(expected))
    if not same.all():
        at = tuple(np.argwhere(~same)[0])
        raise AssertionError(
            f"{what}: {np.count_nonzero(~same)} of {same.size} differ; at {at}: {actual[at]!r}, not {expected[at]!r}"
        )
