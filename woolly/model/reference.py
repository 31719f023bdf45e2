"""Run a graph in NumPy: slow, exact, and the same bits for every batch and every chunk of a prompt.

Before any pass a graph is the truth of its file; after the pass that quantises inputs it is what the native core must
give, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from woolly.gguf import GgufFile
from woolly.model.cache import Cache, Lines
from woolly.model.graph import Graph
from woolly.model.numerics import F32
from woolly.model.ops import OPS
from woolly.model.weights import Matrix, load_matrix, load_vector


class Reference:
    """A graph with its file: decoded weights, and the caches of sequences, are kept between calls.

    ops: what carries out each op, if not its definition: `EXACT` is fast and right up to rounding.
    """

    def __init__(self, graph: Graph, file: GgufFile, *, ops: Mapping[str, Callable[..., Any]] = OPS) -> None:
        self.graph = graph
        self._file = file
        self._ops = ops
        self._weights: dict[str, Matrix | F32] = {}
        self._lines: dict[tuple[Hashable, str], Lines] = {}
        self._last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}

    def run(
        self, tokens: ArrayLike, spans: ArrayLike, want: ArrayLike, *, ids: Sequence[Hashable] | None = None
    ) -> F32:
        """Logits [wants, vocab] of one step over a ragged batch.

        tokens [rows]; spans [sequences, 3] = first row, count, first position; want: rows whose logits are asked for;
        ids: whose cache each span reads and writes (0, 1, ... when not given). A sequence begins at position 0 and
        leaves out none; positions written before may be written again.
        """
        inputs = _inputs(tokens, spans, want)
        if ((inputs["tokens"] < 0) | (inputs["tokens"] >= self.graph.meta.vocab)).any():
            raise ValueError(f"token ids are 0 to {self.graph.meta.vocab - 1}")
        ids = range(len(inputs["spans"])) if ids is None else ids
        values: dict[str, Any] = {"": None, **inputs, **self.graph.tables}
        for state in self.graph.states.values():
            lines = tuple(self._lines.setdefault((i, state.name), Lines(state.heads, state.dim)) for i in ids)
            values[state.name] = Cache(state.heads, state.dim, state.dtype, lines)
        for number, node in enumerate(self.graph.nodes):
            operands = [values[i] if i in values else self.weight(i) for i in node.inputs]
            values[node.name] = self._ops[node.op](*operands, **node.attrs)
            for name in node.inputs:
                if name and self._last[name] == number and name != self.graph.output:
                    values.pop(name, None)
        logits: F32 = values[self.graph.output]
        return logits

    def forget(self, id: Hashable) -> None:
        """Drop a sequence's cache."""
        for key in [key for key in self._lines if key[0] == id]:
            del self._lines[key]

    def weight(self, name: str) -> Matrix | F32:
        """A weight by its name, loaded once."""
        if name not in self._weights:
            weight = self.graph.weights[name]
            load = load_matrix if weight.kind == "matrix" else load_vector
            self._weights[name] = load(weight, self._file)
        return self._weights[name]


def run_reference(graph: Graph, file: GgufFile, tokens: ArrayLike) -> F32:
    """Logits [n, vocab] of every position of one sequence from position 0, in one step."""
    count = len(np.asarray(tokens))
    return Reference(graph, file).run(tokens, [[0, count, 0]], np.arange(count))


def _inputs(tokens: ArrayLike, spans: ArrayLike, want: ArrayLike) -> dict[str, NDArray[np.int32]]:
    """The arrays of a step, with the position of each row."""
    ids, cuts, rows = (np.asarray(a, np.int32) for a in (tokens, spans, want))
    positions = np.full(len(ids), -1, np.int32)
    for row, count, first in cuts.reshape(-1, 3).tolist():
        positions[row : row + count] = np.arange(first, first + count, dtype=np.int32)
    if (positions < 0).any():
        raise ValueError("the spans do not cover all rows")
    return {"tokens": ids, "positions": positions, "spans": cuts.reshape(-1, 3), "want": rows}
