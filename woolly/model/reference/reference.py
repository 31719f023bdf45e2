"""Run a graph in NumPy: slow, exact, and the same bits for every batch and every chunk of a prompt.

Before any pass a graph is the truth of its file; after the pass that quantises inputs it is what the native core must
give, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from woolly.gguf import GgufFile
from woolly.model.graph import Graph
from woolly.model.operands import State
from woolly.model.ops import OPS
from woolly.model.ops.cache import Cache, Carry, Lines
from woolly.model.ops.numerics import F32
from woolly.model.ops.weights import Experts, Matrix, load_experts, load_matrix, load_vector


class Reference:
    """A graph with its file: decoded weights, and the caches of sequences, are kept between calls.

    ops: a function for each op, by default its definition; `EXACT` is fast and right up to rounding. matrices: weights
    of the graph that are in no file: those of adapters.
    """

    def __init__(
        self,
        graph: Graph,
        file: GgufFile,
        *,
        ops: Mapping[str, Callable[..., Any]] = OPS,
        matrices: Mapping[str, F32] = MappingProxyType({}),
    ) -> None:
        self.graph = graph
        self._file = file
        self._ops = ops
        self._weights: dict[str, Experts | Matrix | F32] = {
            name: Matrix("F32", values.view(np.uint8), values.shape[1]) for name, values in matrices.items()
        }
        self._kept: dict[tuple[Hashable, str], Lines | F32] = {}  # what a state holds of a sequence
        self._last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}

    def run(
        self,
        tokens: ArrayLike,
        spans: ArrayLike,
        want: ArrayLike,
        *,
        ids: Sequence[Hashable] | None = None,
        scales: ArrayLike = (),
    ) -> F32:
        """Logits [wants, vocab] of one step over a ragged batch; see `outputs`."""
        return self.outputs(tokens, spans, want, ids=ids, scales=scales)["logits"]

    def outputs(
        self,
        tokens: ArrayLike,
        spans: ArrayLike,
        want: ArrayLike,
        *,
        ids: Sequence[Hashable] | None = None,
        scales: ArrayLike = (),
    ) -> dict[str, F32]:
        """The outputs of one step over a ragged batch, by name.

        tokens [rows]; spans: first row, count, first position of each, then the further columns of a step's spans;
        want: rows whose output is asked for; ids: the sequence whose states each span reads and writes (0, 1, ... when
        not given). A sequence begins at position 0 and leaves out none; positions may be written again, but not into a
        carried state.
        scales: of the adapters of each span, [spans, adapters].
        """
        inputs = _inputs(tokens, spans, want)
        if ((inputs["tokens"] < 0) | (inputs["tokens"] >= self.graph.meta.vocab)).any():
            raise ValueError(f"token ids are 0 to {self.graph.meta.vocab - 1}")
        ids = range(len(inputs["spans"])) if ids is None else ids
        values: dict[str, Any] = {"": None, "scales": np.asarray(scales, np.float32), **inputs, **self.graph.tables}
        for state in self.graph.states.values():
            values[state.name] = self._state(state, ids)
        for number, node in enumerate(self.graph.nodes):
            operands = [values[i] if i in values else self.weight(i) for i in node.inputs]
            values[node.name] = self._ops[node.op](*operands, **node.attrs)
            for name in node.inputs:
                if name and self._last[name] == number and name not in self.graph.outputs.values():
                    values.pop(name, None)
        return {name: values[node] for name, node in self.graph.outputs.items()}

    def forget(self, id: Hashable) -> None:
        """Drop a sequence's states."""
        for key in [key for key in self._kept if key[0] == id]:
            del self._kept[key]

    def weight(self, name: str) -> Experts | Matrix | F32:
        """A weight by its name, loaded once."""
        if name not in self._weights:
            weight = self.graph.weights[name]
            load: Callable[..., Any] = {"experts": load_experts, "matrix": load_matrix, "vector": load_vector}[
                weight.kind
            ]
            self._weights[name] = load(weight, self._file)
        return self._weights[name]

    def _state(self, state: State, ids: Sequence[Hashable]) -> Cache | Carry:
        """What a state holds of these sequences."""
        states: list[Any] = []
        for id_ in ids:
            if (id_, state.name) not in self._kept:
                empty = (
                    Lines(state.heads, state.dim, state.value_dim)
                    if state.kind == "rows"
                    else np.zeros(state.shape, np.float32)
                )
                self._kept[id_, state.name] = empty
            states.append(self._kept[id_, state.name])
        if state.kind == "carry":
            return Carry(tuple(states))
        return Cache(state.heads, state.dim, state.value_dim, state.dtype, tuple(states))


def run_reference(graph: Graph, file: GgufFile, tokens: ArrayLike) -> F32:
    """Logits [n, vocab] of every position of one sequence from position 0, in one step."""
    count = len(np.asarray(tokens))
    return Reference(graph, file).run(tokens, [[0, count, 0]], np.arange(count))


def _inputs(tokens: ArrayLike, spans: ArrayLike, want: ArrayLike) -> dict[str, NDArray[np.int32]]:
    """The arrays of a step, with the position of each row."""
    ids, cuts, rows = (np.asarray(a, np.int32) for a in (tokens, spans, want))
    positions = np.full(len(ids), -1, np.int32)
    for row, count, first, *_ in cuts.tolist():
        positions[row : row + count] = np.arange(first, first + count, dtype=np.int32)
    if (positions < 0).any():
        raise ValueError("the spans do not cover all rows")
    return {"tokens": ids, "positions": positions, "spans": cuts, "want": rows}
