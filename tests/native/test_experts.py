"""A layer of experts: its bits are those of the reference, whatever else is in the step, by any number of threads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.native.sketch import SETS, Sketch, Steps, assert_same_bits, native_outputs, reference_outputs
from woolly.device.cpu import TARGET, machine
from woolly.plan import optimise, quantize_inputs

pytestmark = pytest.mark.native

ROWS = 40  # with three of three experts each gets all rows: enough for panels to be unpacked
TOKENS = np.random.default_rng(3).integers(0, 96, 8 * ROWS).tolist()


def layer(format: str = "Q4_K", down: str = "", experts: int = 6) -> tuple[Sketch, str]:
    s = Sketch(96)
    return s, s.expert_layer(256, 256, format, experts=experts, count=3, down=down)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("down", ["Q4_K", "F16"])
@pytest.mark.parametrize("experts", [3, 6, 40])
def test_a_layer_of_experts_gives_the_bits_of_the_reference(
    down: str, experts: int, exact: bool, tmp_path: Path
) -> None:
    s, node = layer(down=down, experts=experts)
    graph, file = s.graph(node), s.file(tmp_path)
    plain, fused = quantize_inputs(graph, "f16", exact=exact), optimise(graph, TARGET, exact=exact)
    ops = Counter(node.op for node in fused.nodes)
    assert ops["expert_gate_up_quantize" if down == "Q4_K" else "expert_gate_up"] == 1 and ops["expert_linear"] == 1
    steps = Steps([[(0, TOKENS[:ROWS])], [(0, TOKENS[:3]), (1, TOKENS[3:8])], [(1, TOKENS[:1])]])
    expected = reference_outputs(plain, file, steps)
    assert_same_bits(reference_outputs(fused, file, steps), expected)
    for device, isa in SETS:
        for threads in (1, 2, 3):
            outputs = native_outputs(fused, file, steps, device=device, isa=isa, threads=threads)
            assert_same_bits(outputs, expected, (device.name, isa, threads))


def test_eight_sequences_have_the_bits_that_each_has_alone(tmp_path: Path) -> None:
    s, node = layer("Q5_0")
    graph, file = optimise(s.graph(node), TARGET), s.file(tmp_path)
    counts = (1, 1, 1, 1, 1, 1, 1, 1), (1, 40, 1, 7, 2, 33, 1, 64)
    for each in counts:
        ends = np.cumsum(each).tolist()
        spans = [TOKENS[end - count : end] for end, count in zip(ends, each, strict=True)]
        together = native_outputs(graph, file, Steps([list(enumerate(spans))]), isa=machine()["isa"])
        alone = [native_outputs(graph, file, Steps([[(0, span)]]), isa=machine()["isa"]) for span in spans]
        assert_same_bits(together, np.concatenate(alone))


def test_a_prompt_in_pieces_has_the_bits_of_the_whole(tmp_path: Path) -> None:
    s, node = layer("Q8_0", experts=20)
    graph, file = optimise(s.graph(node), TARGET), s.file(tmp_path)
    in_one_step = native_outputs(graph, file, Steps([[(0, TOKENS[:ROWS])]]), isa=machine()["isa"])
    for size in (1, 9, 33):
        pieces = Steps([[(0, TOKENS[at : min(at + size, ROWS)])] for at in range(0, ROWS, size)])
        assert_same_bits(native_outputs(graph, file, pieces, isa=machine()["isa"]), in_one_step, size)


def test_scores_that_are_no_numbers_choose_experts_that_exist(tmp_path: Path) -> None:
    s = Sketch(48, values="huge")
    scores = s.node("softmax", s.node("scale", s.rows(16), by=1e9))  # infinite, so every score is a NaN
    ids = s.node("top_experts", scores, count=4, groups=4, groups_used=2)
    y = s.node("expert_linear", s.rows(4), s.experts(16, 5, 4, "F32"), ids)
    graph, file = s.graph(s.node("expert_sum", y, s.node("take_scores", scores, ids), count=4)), s.file(tmp_path)
    steps = Steps([[(0, TOKENS[:40])], [(1, TOKENS[:2])]])
    steps = Steps([[(sequence, [token % 48 for token in tokens]) for sequence, tokens in step] for step in steps.steps])
    expected = reference_outputs(graph, file, steps)
    assert np.isnan(expected).any()
    for isa in machine()["sets"]:
        assert_same_bits(native_outputs(graph, file, steps, isa=isa), expected, isa)
