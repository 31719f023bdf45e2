"""One instruction per node, with every place fixed, and the barriers between them.

Threads walk the instructions without waiting for each other. A barrier stands before an instruction that touches bytes
which others may still be writing, or writes bytes which others may still be reading: what was touched since the last
barrier decides, by places, so that bytes used again are covered too. In a small step every thread
does small ops for itself, in memory of its own, so that no thread waits for another; in a large one keys and values are
stored before any thread attends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from woolly.gguf.tensor_types import FORMATS
from woolly.model import INPUTS, OPS, Graph, Node, State, Weight
from woolly.plan.memory import LINE, REPLICATED_OPS, WorkArea, place
from woolly.plan.passes import stores_first
from woolly.plan.program import (
    BATCH,
    COUNTS,
    INSTRUCTION,
    PAGE,
    PER_THREAD,
    SLOT,
    TABLE,
    WEIGHT,
    WORK,
    Bounds,
    Operand,
    OpName,
    Output,
    PackOrder,
    PageGroup,
    Program,
    TablePlace,
    Target,
)
from woolly.plan.reads import token_bytes

ABSENT = Operand()


def lower(graph: Graph, area: WorkArea, target: Target, bounds: Bounds, adapted: Graph | None = None) -> Program:
    """The program of a graph whose values have their places.

    adapted: the same graph with what adapters add, whose values have their places too.
    """
    full = adapted or graph
    operands: dict[str, Operand] = {"": ABSENT}
    operands |= dict.fromkeys(INPUTS, Operand(BATCH))
    packs, weight_bytes = _pack_orders(full, target, operands)
    tables, table_bytes = _tables(graph, bounds, operands)
    groups, slot_bytes = _states(graph, target, operands)
    for node in full.nodes:
        operands[node.name] = _activation(node, area, WORK)
    small = replace(bounds, rows=target.small_step, wants=target.small_step, sequences=target.small_step)
    replicated_area, shared = place(graph, small, REPLICATED_OPS), set(graph.outputs.values())
    replicated = {
        node.name: _activation(node, replicated_area, PER_THREAD)
        for node in graph.nodes
        if node.name in replicated_area.places and node.name not in shared
    }

    many = stores_first(graph)
    nodes = [*many.nodes, *graph.nodes, *(() if adapted is None else (*stores_first(adapted).nodes, *adapted.nodes))]
    operands |= {node.name: ABSENT for node in nodes if not node.width}
    ops = {node.op: _op_name(node.op) for node in nodes if node.op != "slice"}
    layouts = {
        name: number for number, name in enumerate(dict.fromkeys(("none", *(o.layout for o in operands.values()))))
    }

    def code(graph: Graph, places: dict[str, Operand]) -> NDArray[np.void]:
        return _code(graph, places, list(ops), layouts)

    program = Program(
        target, bounds, tuple(ops.values()), tuple(layouts),
        code(many, operands), code(graph, operands | replicated),
        tuple(packs), tuple(tables), weight_bytes, token_bytes(graph, packs), area.nbytes, replicated_area.nbytes,
        table_bytes, groups, slot_bytes, _outputs(graph, area), graph.meta.vocab, graph.single_step,
    )  # fmt: skip
    if adapted is None:
        return program
    return replace(
        program, adapted=code(stores_first(adapted), operands), adapted_small_step=code(adapted, operands | replicated)
    )


def _outputs(graph: Graph, area: WorkArea) -> tuple[Output, ...]:
    nodes = {node.name: node for node in graph.nodes}
    return tuple(
        Output(name, area.places[node].offset, nodes[node].rows, nodes[node].width)
        for name, node in graph.outputs.items()
    )


def _op_name(name: str) -> OpName:
    return OpName(name, len(OPS[name].tensors), tuple(OPS[name].attrs))


def _code(graph: Graph, operands: dict[str, Operand], ops: list[str], layouts: dict[str, int]) -> NDArray[np.void]:
    """The instructions, with these operands, and the barriers that their places ask for."""
    nodes = [node for node in graph.nodes if node.op != "slice"]
    code = np.zeros(len(nodes), INSTRUCTION)
    hazards = _Hazards()
    for row, node in zip(code, nodes, strict=True):
        inputs = [operands[name] for name in node.inputs]
        out = operands[node.name]
        writes = [out, *(operand for operand in inputs if operand.kind in (PAGE, SLOT) and node.op != "attend")]
        row["op"], row["rows"] = ops.index(node.op), COUNTS.index(node.rows)
        row["barrier"] = hazards.meets(inputs, writes)
        row["out"] = out.encoded(layouts)
        for index, operand in enumerate(inputs):
            row["inputs"][index] = operand.encoded(layouts)
        for index, name in enumerate(OPS[node.op].attrs):
            row["attrs"][index] = node.attrs[name]
    return code


def _activation(node: Node, area: WorkArea, kind: int) -> Operand:
    if not node.width:
        return ABSENT
    place = area.places[node.name]
    layout = {"f32": "plain", "q8": "record", "q16": "wide", "ids": "ids"}[node.dtype]
    return Operand(kind, place.offset, place.stride, layout, node.width, nbytes=place.nbytes)


def _pack_orders(graph: Graph, target: Target, operands: dict[str, Operand]) -> tuple[list[PackOrder], int]:
    """How every weight is packed, one after the other; fills in their operands."""
    orders: list[PackOrder] = []
    at = 0
    for weight in graph.weights.values():
        order = _vector(weight, at) if len(weight.shape) == 1 else _matrix(weight, at, target)
        orders.append(order)
        stride = 0 if order.layout == "plain" else order.nbytes // (order.rows // target.panel)
        height = 1 if order.layout == "plain" else weight.shape[-2]
        operands[weight.name] = Operand(WEIGHT, at, stride, order.layout, order.columns, height, order.nbytes)
        at += _lines(order.nbytes)
    return orders, at


def _vector(weight: Weight, at: int) -> PackOrder:
    n = weight.shape[0]
    return PackOrder(weight.name, () if weight.values else weight.rows, weight.values, False, "plain", at, 4 * n, 1, n)


def _matrix(weight: Weight, at: int, target: Target) -> PackOrder:
    """Panels of each matrix: of a single one, of gate and up in turn, or of expert after expert."""
    *experts, rows, columns = weight.shape
    panel, turns = target.panel, len(weight.rows) if weight.alternate else 1
    packed = math.prod(experts) * turns * -(-(rows // turns) // panel) * panel
    nbytes = packed * FORMATS[weight.format].row_bytes(columns)
    return PackOrder(
        weight.name, weight.rows, (), weight.alternate, weight.format.lower(), at, nbytes, packed, columns,
        math.prod(experts), weight.transposed,
    )  # fmt: skip


def _tables(graph: Graph, bounds: Bounds, operands: dict[str, Operand]) -> tuple[list[TablePlace], int]:
    places: list[TablePlace] = []
    at = 0
    for name, table in graph.tables.items():
        nbytes = bounds.context * table.width * 4
        operands[name] = Operand(TABLE, at, table.width * 4, "plain", table.width, nbytes=nbytes)
        places.append(TablePlace(table, at))
        at += _lines(nbytes)
    return places, at


def _states(graph: Graph, target: Target, operands: dict[str, Operand]) -> tuple[tuple[PageGroup, ...], int]:
    """Places of states in the pages of their group, or in a slot; fills in their operands."""
    windows = list(dict.fromkeys(state.window for state in graph.states.values() if state.kind == "rows"))
    ends = dict.fromkeys(windows, 0)
    slot = 0
    for state in graph.states.values():
        if state.kind == "rows":
            at, nbytes, group = ends[state.window], target.page * position_bytes(state), windows.index(state.window)
            layout = f"{'latent' if state.latent else 'kv'}_{state.dtype}"
            operands[state.name] = Operand(PAGE, at, 0, layout, state.dim, state.heads, nbytes, group)
            ends[state.window] += _lines(nbytes)
        else:
            nbytes = 4 * math.prod(state.shape)
            operands[state.name] = Operand(SLOT, slot, 0, "plain", math.prod(state.shape), state.heads, nbytes)
            slot += _lines(nbytes)
    return tuple(PageGroup(window, nbytes) for window, nbytes in ends.items()), slot


def _lines(nbytes: int) -> int:
    """Rounded up to whole cache lines."""
    return -(-nbytes // LINE) * LINE


def position_bytes(state: State) -> int:
    """Bytes of one position of a layer's keys and values, or of the one row for both; q8 has a 16-bit scale for 32
    values."""

    def row(dim: int) -> int:
        return {"f32": 4 * dim, "f16": 2 * dim, "q8": dim + 2 * -(-dim // 32)}[state.dtype]

    return state.heads * (row(state.dim) + (0 if state.latent else row(state.value_dim)))


@dataclass(slots=True)
class _Hazards:
    """What was read and written since the last barrier."""

    reads: list[Operand] = field(default_factory=list)
    writes: list[Operand] = field(default_factory=list)

    def meets(self, reads: list[Operand], writes: list[Operand]) -> bool:
        """Whether an instruction must wait at a barrier; its reads and writes are recorded either way."""
        waits = any(_overlap(a, b) for a in (*reads, *writes) for b in self.writes) or any(
            _overlap(a, b) for a in writes for b in self.reads
        )
        if waits:
            self.reads, self.writes = [], []
        self.reads += reads
        self.writes += writes
        return waits


def _overlap(a: Operand, b: Operand) -> bool:
    """Whether two operands share bytes. Slices of one value share a range of bytes, but not the same columns."""
    if (a.kind, a.group) != (b.kind, b.group) or a.kind not in (WORK, PAGE, SLOT):
        return False
    if a.place + a.nbytes <= b.place or b.place + b.nbytes <= a.place:
        return False
    if a.kind == WORK and a.stride == b.stride and a.layout == b.layout == "plain" and a.stride > 0:
        offset = (b.place - a.place) % a.stride  # columns of b relative to a's row
        return offset < 4 * a.width or offset + 4 * b.width > a.stride
    return True
