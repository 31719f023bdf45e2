"""Every family against logits that another implementation computed in float64, and against its definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.families import FAMILY_CASES, FamilyCase, every_family_case
from tests.golden import EXACT
from woolly import gguf, model, native, plan
from woolly.model import FAMILIES, Reference
from woolly.native import machine


def logits(path: Path, case: FamilyCase, kv: str, isa: str, *pieces: list[int]) -> NDArray[np.float32]:
    """Of all tokens of a sequence that is computed in pieces."""
    with gguf.open(path) as file:
        graph = model.build(file, case.context)
        program = plan.plan(graph, plan.CPU, plan.Bounds(64, 64, 1, case.context), kv=kv)
        count = plan.fit(program, 1 << 40, asked=True).pages
        runner = native.Runner(program, file, threads=1, pages=count, isa=isa)
    pages = np.tile(np.arange(-(-case.context // 64), dtype=np.int32), (len(program.groups), 1, 1))
    found, first = [], 0
    for piece in pieces:
        spans, want = [[0, len(piece), first, 0 if program.slot_bytes else -1, 0]], range(len(piece))
        step = native.Batch(*(np.array(a, np.int32) for a in (piece, spans, pages, want)))
        outputs = runner.run(runner.batch.put(step))
        assert outputs is not None
        found.append(outputs["logits"][: len(piece)].copy())
        first += len(piece)
    return np.concatenate(found)


def test_every_family_has_a_case() -> None:
    assert {case.family for case in FAMILY_CASES} == set(FAMILIES)


@every_family_case
def test_a_family_is_as_exact_as_float32_arithmetic_whole_and_in_pieces(case: FamilyCase, tmp_path: Path) -> None:
    path, tokens = case.write(tmp_path / "model.gguf"), case.tokens
    whole = logits(path, case, "f32", native.ISA, tokens)
    assert case.error(whole) <= EXACT
    assert logits(path, case, "f32", native.ISA, tokens[:7], tokens[7:8], tokens[8:]).tobytes() == whole.tobytes()


@every_family_case
def test_every_set_gives_the_bits_of_a_familys_definition(case: FamilyCase, tmp_path: Path) -> None:
    path, tokens = case.write(tmp_path / "model.gguf"), case.tokens[:11]
    with gguf.open(path) as file:
        graph = plan.optimise(model.build(file, case.context), plan.CPU, kv="f16")
        expected = Reference(graph, file).run(tokens, [[0, 11, 0]], range(11))
    for isa in machine()["sets"]:
        assert logits(path, case, "f16", isa, tokens).tobytes() == expected.tobytes(), isa
