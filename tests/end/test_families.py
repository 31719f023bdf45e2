"""Every family against logits that another implementation computed in float64, and against its definition."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.families import FAMILY_CASES, FamilyCase, every_family_case
from tests.golden import EXACT
from tests.native.sketch import CPU, SETS
from woolly import gguf, model, plan
from woolly.device import Batch, Device
from woolly.device.cpu import ISA
from woolly.model import FAMILIES, Reference

Rows = NDArray[np.float32]
ROWS = 64  # of a step


class Stepper:
    """A model of which one step after another is computed, with the pages of three sequences."""

    def __init__(self, path: Path, case: FamilyCase, kv: str, device: Device = CPU, isa: str = ISA) -> None:
        with gguf.open(path) as file:
            graph = model.build(file, case.context)
            program = plan.plan(graph, device.target, plan.Bounds(ROWS, ROWS, 3, case.context), kv=kv)
            count = [3 * n for n in plan.fit(program, 1 << 40, asked=True).pages]
            self.runner = device.runner(program, file, threads=1, pages=count, isa=isa)
        self.output = self.runner.output
        self.single_step, self.slots = graph.single_step, self.runner.slots
        each = -(-case.context // 64)
        self.pages = np.tile(np.arange(3 * each, dtype=np.int32).reshape(3, each), (len(program.groups), 1, 1))

    def step(self, *texts: Iterable[int], first: int = 0) -> list[Rows]:
        """The output of each text, from this position on: a row for each of its tokens, or one for all."""
        tokens, spans = list[int](), list[list[int]]()
        for text in map(list, texts):
            spans.append([len(tokens), len(text), first, len(spans) if self.slots else -1, 0])
            tokens += text
        arrays = (tokens, spans, self.pages[:, : len(spans)], range(len(tokens)))
        outputs = self.runner.run(self.runner.batch.put(Batch(*(np.array(a, np.int32) for a in arrays))))
        assert outputs is not None
        rows = outputs[self.output.name]
        if self.output.rows == "spans":
            return [rows[index : index + 1].copy() for index in range(len(spans))]
        return [rows[row : row + count].copy() for row, count, *_ in spans]


def test_every_family_has_a_case() -> None:
    assert {case.family for case in FAMILY_CASES} == set(FAMILIES)


@every_family_case
def test_a_family_is_as_exact_as_float32_arithmetic_whole_in_pieces_and_among_others(
    case: FamilyCase, tmp_path: Path
) -> None:
    path, tokens = case.write(tmp_path / "model.gguf"), case.tokens
    model = Stepper(path, case, "f32")
    [in_one_step] = model.step(tokens)
    assert case.error(in_one_step) <= EXACT
    if not model.single_step:
        cuts = ((0, 7), (7, 8), (8, len(tokens)))
        pieces = [row for first, last in cuts for row in model.step(tokens[first:last], first=first)]
        assert np.concatenate(pieces).tobytes() == in_one_step.tobytes()
    _, among, _ = model.step(tokens[5:20], tokens, tokens[3:10])
    assert among.tobytes() == in_one_step.tobytes()
    assert_bits_of_its_definition(case, path, [(CPU, ISA)])


@pytest.mark.parametrize("case", FAMILY_CASES[::10], ids=lambda case: case.name)
def test_every_set_gives_the_bits_of_a_familys_definition(case: FamilyCase, tmp_path: Path) -> None:
    """Some of them: the sets are compared op by op."""
    assert_bits_of_its_definition(case, case.write(tmp_path / "model.gguf"), SETS)


def assert_bits_of_its_definition(case: FamilyCase, path: Path, sets: Iterable[tuple[Device, str]]) -> None:
    tokens = case.tokens[:11]
    with gguf.open(path) as file:
        graph = plan.optimise(model.build(file, case.context), CPU.target, kv="f16")
        expected, *_ = Reference(graph, file).outputs(tokens, [[0, 11, 0]], range(11)).values()
    for device, isa in sets:
        [logits] = Stepper(path, case, "f16", device, isa).step(tokens)
        assert logits.tobytes() == expected.tobytes(), (device.name, isa)
