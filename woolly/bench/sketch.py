"""One op, or a few, as a model of their own, for `bench kernels`.

A sketch is a graph with a file of random weights. Activations come from an embedding, so the tokens of a step choose
their rows, and the result is the logits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from woolly import gguf, plan
from woolly.bench.random_model import random_rows
from woolly.bench.subject import PAGE
from woolly.device import Batch, cpu
from woolly.model import INPUTS, OPS, Graph, Keys, Meta, Node, RopeTable, State, Weight, check


class Sketch:
    """Write a graph node by node. `words`, the size of its vocabulary, is the width of its result."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.random = np.random.Generator(np.random.SFC64(1))
        self.tensors: dict[str, tuple[str, tuple[int, ...], object]] = {}
        self.nodes: dict[str, Node] = {}
        self.weights: dict[str, Weight] = {}
        self.states: dict[str, State] = {}

    def matrix(self, rows: int, columns: int, form: str) -> str:
        raw = random_rows(form, rows, columns, columns**-0.5, self.random)
        return self._weight((rows, columns), form, raw)

    def vector(self, n: int) -> str:
        return self._weight((n,), "F32", np.ones(n, np.float32))

    def rows(self, width: int) -> str:
        """Activations of this width."""
        return self.node("embed", "tokens", self.matrix(self.words, width, "Q4_0"))

    def state(self, heads: int, dim: int) -> str:
        name = f"cache.{len(self.states)}"
        self.states[name] = State(name, (heads, dim))
        return name

    def node(self, op: str, *inputs: str, **attrs: int | float) -> str:
        known = {**INPUTS, **self.nodes, **self.weights, **self.states}
        rows, width, dtype = OPS[op].shape([known[i] if i else None for i in inputs], attrs)
        name = f"{op}{len(self.nodes)}"
        self.nodes[name] = Node(name, op, inputs, attrs, rows, width, dtype)
        return name

    def linear(self, x: str, weight: str) -> str:
        return self.node("linear", x, weight, "", "", scale=1.0)

    def graph(self, output: str) -> Graph:
        """The graph whose logits are the wanted rows of this node."""
        if self.nodes[output].rows == "rows":
            output = self.node("take", output, "want")
        keys, rope = Keys("sketch", "sketch", {}), RopeTable(10000.0, 2)
        meta = Meta("sketch", 1, 1, self.words, 4096, (1,), (1,), (1,), 2, 2, rope, keys)
        return check(Graph(tuple(self.nodes.values()), self.weights, self.states, {}, {"logits": output}, meta))

    def _weight(self, shape: tuple[int, ...], form: str, raw: object) -> str:
        name = f"weight{len(self.tensors)}"
        self.tensors[name] = (form, shape, raw)
        self.weights[name] = Weight(name, shape, form)
        return name


@contextmanager
def sketch_file(sketch: Sketch) -> Iterator[gguf.GgufFile]:
    """The file of a sketch, open, in a folder that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="woolly-bench-") as folder:
        path = Path(folder) / "sketch.gguf"
        gguf.write(path, {"general.architecture": "sketch"}, sketch.tensors)
        with gguf.open(path) as file:
            yield file


class LoadedSketch:
    """A sketch in the core, for steps of at most so many rows."""

    def __init__(self, graph: Graph, file: gguf.GgufFile, *, rows: int, threads: int, positions: int = PAGE) -> None:
        self.program = plan.plan(graph, cpu.TARGET, plan.Bounds(rows, rows, 1, max(positions, rows)))
        self._pages = np.arange(-(-max(positions, rows) // PAGE), dtype=np.int32)[None]
        self.runner = cpu.Runner(
            self.program, file, threads=threads, pages=[self._pages.size] * len(self.program.groups)
        )

    def seconds(self, ops: frozenset[str], rows: int, position: int = 0) -> float:
        """One step; the seconds of those instructions that carry out these ops."""
        all_rows = np.arange(rows, dtype=np.int32)
        spans = np.array([[0, rows, position]], np.int32)
        step = Batch(all_rows % self.runner.vocab, spans, self._pages, all_rows)
        times = self.runner.times(self.runner.batch.put(step))
        names = [op.name for op in self.program.ops]
        ours = [names[int(row["op"])] in ops for row in self.program.walked(rows, rows)]
        return float(times[ours].sum()) / 1e9
