"""Places, barriers and packing orders of a program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.tiny import FAMILIES, tiny
from woolly import gguf
from woolly.device.cpu import TARGET
from woolly.gguf.tensor_types import LAYOUTS
from woolly.model import build
from woolly.plan import Bounds, Program, optimise, plan
from woolly.plan.memory import LINE, place
from woolly.plan.program import NOTHING, PAGE, PER_THREAD, WORK

BOUNDS = Bounds(64, 8, 2, 512)


@pytest.mark.parametrize("family", FAMILIES)
def test_values_that_live_at_the_same_time_do_not_share_bytes(family: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", family)) as file:
        graph = optimise(build(file), TARGET)
    area = place(graph, BOUNDS)
    nodes = {node.name: node for node in graph.nodes}

    def unsliced(name: str) -> str:
        while nodes[name].op == "slice":
            name = nodes[name].inputs[0]
        return name

    born = {node.name: index for index, node in enumerate(graph.nodes)}
    read = dict(born)
    for index, node in enumerate(graph.nodes):
        for name in node.inputs:
            if name in nodes:
                read[unsliced(name)] = index
    read[unsliced(graph.outputs["logits"])] = len(nodes)
    values = [n for n in graph.nodes if n.width and n.op != "slice"]
    shared = 0
    for a in values:
        for b in values:
            if born[a.name] >= born[b.name]:
                continue
            p, q = area.places[a.name], area.places[b.name]
            meet = p.offset < q.offset + q.nbytes and q.offset < p.offset + p.nbytes
            # b may take a's place where it is the one that reads it last, value by value
            assert not meet or read[a.name] <= born[b.name], (a.name, b.name)
            shared += meet
    assert shared > 0 and area.nbytes < sum(area.places[n.name].nbytes for n in values)
    assert all(p.offset % 4 == 0 for p in area.places.values())


def test_the_work_area_holds_every_place(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        program = plan(build(file), TARGET, BOUNDS)
    sizes = {WORK: program.work_bytes, PER_THREAD: program.per_thread_bytes}
    for row in (*program.code, *program.small_step):
        for operand in (row["out"], *row["inputs"]):
            if operand["kind"] in sizes:
                assert operand["place"] >= 0
                assert operand["place"] + operand["nbytes"] <= sizes[int(operand["kind"])]
    assert all(output.place % LINE == 0 for output in program.outputs)


@pytest.mark.parametrize("rows", ["many", "few"])
def test_nothing_is_read_before_a_barrier_made_it_complete(rows: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", "qwen3")) as file:
        program = plan(build(file), TARGET, BOUNDS)
    written: list[tuple[int, int, int]] = []  # kind, first byte, end since the last barrier
    for row in program.small_step if rows == "few" else program.code:
        if row["barrier"]:
            written = []
        inputs = [o for o in row["inputs"] if o["kind"] in (WORK, PAGE)]
        for operand in inputs:
            first, end = int(operand["place"]), int(operand["place"] + max(4 * operand["width"], 1))
            assert not any(k == operand["kind"] and first < e and f < end for k, f, e in written)
        out = row["out"]
        if out["kind"] != NOTHING:
            written.append((int(out["kind"]), int(out["place"]), int(out["place"] + 4 * out["width"])))
        else:  # a store writes its state
            state = row["inputs"][2]
            written.append((PAGE, int(state["place"]), int(state["place"] + state["nbytes"])))


def test_independent_instructions_share_a_barrier(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        program = plan(build(file), TARGET, BOUNDS)
    names = [program.ops[row["op"]].name for row in program.code]
    ropes = [index for index, name in enumerate(names) if name == "rope"]
    assert [bool(program.code[index]["barrier"]) for index in ropes] == [True, False, True, False]


def test_a_layer_of_few_rows_has_five_barriers(tmp_path: Path) -> None:
    """After the products of q, k and v, attention, its output, gate and up, and down; nowhere else."""
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        program = plan(build(file), TARGET, BOUNDS)
        layers = build(file).meta.layers
    names = [program.ops[row["op"]].name for row in program.small_step]
    waits = [name for name, row in zip(names, program.small_step, strict=True) if row["barrier"]]
    layer = ["norm_quantize", "rope", "quantize", "norm_quantize", "linear"]
    last = ["norm_quantize", "rope", "take", "norm_quantize", "linear"]  # each thread takes the wanted rows for itself
    assert waits[: 5 * layers] == layer * (layers - 1) + last
    assert len(waits) == 5 * layers + 2  # before the last norm, and after it: it is an output


@pytest.mark.parametrize("format", LAYOUTS)
def test_the_packed_size_is_the_files(format: str, tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", format=format.upper(), tied=False)) as file:
        program = plan(build(file), TARGET, BOUNDS)
        size = sum(info.nbytes for info in file.tensors.values())
    # all matrices here have whole panels; vectors become float32 and every weight begins at a line
    assert size <= program.weight_bytes <= size + LINE * len(program.packs)


def test_every_tensor_is_packed_once(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf")) as file:
        program = plan(build(file), TARGET, BOUNDS)
        tensors = sorted(file.tensors)
    assert sorted(part.tensor for order in program.packs for part in order.parts) == tensors
    ends = [(order.place, order.place + order.nbytes) for order in program.packs]
    assert all(a[1] <= b[0] for a, b in zip(sorted(ends), sorted(ends)[1:], strict=False))


def same(a: Program, b: Program) -> bool:
    return a.code.tobytes() == b.code.tobytes() and a.packs == b.packs and a.tables == b.tables


def test_the_same_file_gives_the_same_program(tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", "mistral3")
    with gguf.open(path) as one, gguf.open(path) as two:
        assert same(plan(build(one), TARGET, BOUNDS), plan(build(two), TARGET, BOUNDS))


def test_the_cache_is_as_large_as_its_type(tmp_path: Path) -> None:
    with gguf.open(tiny(tmp_path / "model.gguf", heads=4, kv_heads=2, head_dim=16)) as file:
        sizes = {kv: plan(build(file), TARGET, BOUNDS, kv=kv).page_bytes for kv in ("f32", "f16", "q8")}
    values = 2 * 2 * 2 * 16  # layers, keys and values, heads, dimensions
    assert sizes == {"f32": 64 * values * 4, "f16": 64 * values * 2, "q8": 64 * (values + values // 16 * 2)}


def test_the_instruction_has_the_size_the_core_expects() -> None:
    from woolly.plan.program import INSTRUCTION

    assert INSTRUCTION.itemsize == 8 * (3 + 9 * 8 + 6)
    assert np.dtype(INSTRUCTION).isalignedstruct
