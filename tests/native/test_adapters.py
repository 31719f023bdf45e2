"""Adapters in a step: each row is computed with its own, to the bit of the definition; others are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.lora import LINEAR, adapter
from tests.native.sketch import CPU, SETS, assert_same_bits
from tests.native.stepping import computed
from tests.tiny import tiny
from woolly import gguf
from woolly.device import Batch, Device
from woolly.device.cpu import Runner
from woolly.errors import NativeError
from woolly.model import Reference, build, read_adapter
from woolly.plan import Bounds, Program, add_deltas, optimise, plan

pytestmark = pytest.mark.native

TOKENS = np.random.default_rng(3).integers(0, 256, 60).tolist()
BASE, A, B, BOTH = (0.0, 0.0), (1.0, 0.0), (0.0, -0.5), (0.7, 1.5)
EVERY = (BASE, A, BOTH, B, BASE)


class Adapted:
    """A model with two adapters, the graph that defines the result, and the program that the core runs."""

    def __init__(self, folder: Path, family: str, format: str, *, exact: bool = False, **sizes: Any) -> None:
        self.path = tiny(folder / "model.gguf", family, format, **sizes)
        only = (*LINEAR, *(() if sizes.get("tied", True) else ("output.weight",)))
        paths = (
            adapter(folder / "a.gguf", self.path, seed=1, rank=4, only=only),
            adapter(
                folder / "b.gguf",
                self.path,
                seed=2,
                rank=19,
                only=("attn_k.weight", "ffn_up.weight", "ffn_down.weight"),
            ),
        )
        self.file = gguf.open(self.path)
        graph = build(self.file)
        self.adapters = [read_adapter(gguf.open(path), path.stem, graph, self.file) for path in paths]
        self.graph, self.matrices = add_deltas(optimise(graph, CPU.target, exact=exact), self.adapters)
        self.exact, self.base = exact, graph

    def program(self, device: Device = CPU, *, adapters: bool = True) -> Program:
        loaded = self.adapters if adapters else ()
        return plan(self.base, device.target, Bounds(64, 64, 8, 512), exact=self.exact, adapters=loaded)

    def expected(self, steps: Sequence[int], scales: Sequence[tuple[float, float]]) -> NDArray[np.float32]:
        reference = Reference(self.graph, self.file, matrices=self.matrices)
        batches = [batch(first, count, scales) for first, count in cuts(steps)]
        return np.concatenate(
            [reference.run(b.tokens, b.spans, b.want, scales=b.scales, ids=range(len(b.spans))) for b in batches]
        )


def cuts(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First position and count of each step."""
    ends = np.cumsum([0, *steps]).tolist()
    return list(zip(ends, steps, strict=False))


def batch(first: int, count: int, scales: Sequence[tuple[float, float]], each: int = 8) -> Batch:
    """A sequence for each of these scales, all with equal tokens; every second row is wanted, and the last of each."""
    spans = [[i * count, count, first, -1, int(any(own))] for i, own in enumerate(scales)]
    want = [row for row in range(count * len(scales)) if row % 2 or (row + 1) % count == 0]
    pages = np.random.default_rng(7).permutation(8 * len(scales)).astype(np.int32).reshape(-1, each)
    return Batch(
        np.array(TOKENS[first : first + count] * len(scales), np.int32),
        np.array(spans, np.int32),
        pages,
        np.array(want, np.int32),
        scales=np.array(scales, np.float32),
    )


def native(
    program: Program,
    adapted: Adapted,
    steps: Sequence[int],
    scales: Sequence[tuple[float, float]],
    isa: str,
    threads: int,
    device: Device = CPU,
) -> NDArray[np.float32]:
    runner = device.runner(program, adapted.file, threads=threads, pages=[64], isa=isa)
    out = []
    for first, count in cuts(steps):
        step = batch(first, count, scales)
        if not program.adapters:
            step = replace(step, scales=np.zeros((0, 0), np.float32))
        logits = computed(runner, step)
        assert logits is not None
        out.append(logits.copy())
    return np.concatenate(out)


@pytest.mark.parametrize(
    ("family", "format", "sizes"),
    [
        ("llama", "Q4_0", {}),
        ("llama", "F16", {"width": 48, "head_dim": 12, "ffn": 40, "tied": False}),
        ("llama", "Q8_0", {"tied": False}),
        ("qwen2", "Q4_K", {}),
        ("granite", "Q6_K", {"exact": True}),
    ],
    ids=lambda value: str(value),
)
def test_each_sequence_has_its_own_adapters_to_the_bit_of_the_definition(
    family: str, format: str, sizes: dict[str, Any], tmp_path: Path
) -> None:
    adapted = Adapted(tmp_path, family, format, **sizes)
    for steps in ((12, 1, 1), (3, 1)):  # a step of many rows, then steps of few
        expected = adapted.expected(steps, EVERY)
        for device, isa in SETS:
            for threads in (1, 3):
                outputs = native(adapted.program(device), adapted, steps, EVERY, isa, threads, device)
                assert_same_bits(outputs, expected, (isa, threads, steps))


def test_a_sequence_is_the_same_alone_and_among_others_and_without_an_adapter_as_if_none_were_loaded(
    tmp_path: Path,
) -> None:
    adapted = Adapted(tmp_path, "llama", "Q5_1", tied=False)
    isa = CPU.sets[-1]
    together = native(adapted.program(), adapted, (10,), EVERY, isa, 2).reshape(len(EVERY), -1, 288)
    for own, logits in zip(EVERY, together, strict=True):
        alone = native(adapted.program(), adapted, (10,), [own], isa, 2)
        assert_same_bits(logits, alone, own)
        base = native(adapted.program(adapters=False), adapted, (10,), [BASE], isa, 2)
        assert (logits == base).all() == (own == BASE)
    assert_same_bits(together[0], base)


def test_without_adapters_a_program_is_what_it_was_and_with_them_its_plain_lists_are(tmp_path: Path) -> None:
    adapted = Adapted(tmp_path, "llama", "Q4_0")
    with_them, without = adapted.program(), adapted.program(adapters=False)
    for code in ("code", "small_step"):
        ours, theirs = getattr(with_them, code).copy(), getattr(without, code).copy()
        for rows in (ours, theirs):
            rows["out"]["layout"] = rows["inputs"]["layout"] = 0  # indices into a table, longer with adapters
        assert ours.tobytes() == theirs.tobytes()
    assert with_them.ops[: len(without.ops)] == without.ops
    assert with_them.packs[: len(without.packs)] == without.packs
    assert not len(without.adapted) and not without.matrices and len(with_them.adapted) > len(with_them.code)


def test_an_adapter_that_is_not_loaded_is_refused(tmp_path: Path) -> None:
    adapted = Adapted(tmp_path, "llama", "Q4_0")
    plain = Runner(adapted.program(adapters=False), adapted.file, threads=1, pages=[64])
    loaded = Runner(adapted.program(), adapted.file, threads=1, pages=[64])
    for runner, number in ((plain, 1), (loaded, 2), (loaded, -1)):
        wrong = batch(0, 2, [A])
        wrong.spans[0, 4] = number
        with pytest.raises(NativeError, match="adapter does not exist"):
            runner.run(runner.batch.put(Batch(wrong.tokens, wrong.spans, wrong.pages, wrong.want)))
