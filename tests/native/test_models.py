"""Whole models: the compiled core equals the NumPy reference, from weights, tokens and positions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native.sketch import CPU, SANITIZED, SETS, Steps, assert_same_bits
from tests.native.stepping import computed
from tests.tiny import ALL_BIASES, FAMILIES, tiny
from woolly import gguf
from woolly.device import Batch, Device
from woolly.gguf.tensor_types import FORMATS
from woolly.model import Reference, build
from woolly.plan import PASSES, Bounds, optimise, plan

pytestmark = pytest.mark.native

TOKENS = np.random.default_rng(3).integers(0, 256, 300).tolist()


def reference_logits(path: Path, tokens: list[int], kv: str = "f16", exact: bool = False) -> NDArray[np.float32]:
    with gguf.open(path) as file:
        graph = optimise(build(file), CPU.target, kv=kv, exact=exact)
        return Reference(graph, file).run(tokens, [[0, len(tokens), 0]], np.arange(len(tokens)))


def native_logits(
    path: Path,
    steps: Steps,
    *,
    kv: str = "f16",
    exact: bool = False,
    threads: int = 2,
    device: Device = CPU,
    isa: str = CPU.sets[-1],
    skip: tuple[str, ...] = (),
) -> NDArray[np.float32]:
    """Logits of every row of every step."""
    bounds = Bounds(steps.rows(), steps.rows(), steps.sequences(), 512)
    with gguf.open(path) as file:
        program = plan(build(file), device.target, bounds, kv=kv, exact=exact, skip=skip)
        runner = device.runner(program, file, threads=threads, pages=[8 * bounds.sequences], isa=isa)
    table = np.random.default_rng(7).permutation(8 * bounds.sequences).astype(np.int32).reshape(-1, 8)
    out = []
    for tokens, spans, ids in steps.batches():
        want = np.arange(len(tokens), dtype=np.int32)
        logits = computed(runner, Batch(np.array(tokens, np.int32), np.array(spans, np.int32), table[ids], want))
        assert logits is not None
        out.append(logits.copy())
    return np.concatenate(out)


def chunks(tokens: list[int], size: int) -> Steps:
    return Steps([[(0, tokens[at : at + size])] for at in range(0, len(tokens), size)])


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_of_every_format_gives_the_bits_of_the_reference_in_every_set(format: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", format=format)
    expected = reference_logits(path, TOKENS[:40])
    for device, isa in SETS:
        assert_same_bits(native_logits(path, chunks(TOKENS[:40], 40), device=device, isa=isa), expected, isa)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_every_family_gives_the_bits_of_the_reference(family: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", family, "Q4_1")
    assert_same_bits(native_logits(path, chunks(TOKENS[:40], 40)), reference_logits(path, TOKENS[:40]))


@pytest.mark.parametrize("kv", ["f32", "f16", "q8"])
def test_chunks_threads_and_sets_do_not_move_a_bit(kv: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", format="Q5_1")
    expected = reference_logits(path, TOKENS, kv)  # more positions than one part of attention
    for device, isa in SETS:
        for threads, size in ((1, 300), (2, 32), (3, 7)):
            logits = native_logits(path, chunks(TOKENS, size), kv=kv, threads=threads, device=device, isa=isa)
            assert_same_bits(logits, expected)
    assert_same_bits(native_logits(path, chunks(TOKENS[:70], 1), kv=kv), expected[:70])


# under the sanitizers one format of each kind: test_products.py has the wide products of all
@pytest.mark.parametrize("format", ("Q4_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_NL", "IQ3_S", "F16") if SANITIZED else FORMATS)
def test_exact_models_give_the_bits_of_the_reference_in_every_set(format: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", format=format)
    expected = reference_logits(path, TOKENS[:36], "f32", exact=True)
    for device, isa in SETS:
        for threads, size, count in ((1, 36, 36), (2, 9, 18), (3, 1, 4)):  # many rows and few take different loops
            how: dict[str, Any] = {"exact": True, "threads": threads, "device": device, "isa": isa}
            logits = native_logits(path, chunks(TOKENS[:count], size), kv="f32", **how)
            assert_same_bits(logits, expected[:count], isa)


def test_a_sequence_among_others_has_the_bits_of_one_alone(tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", "qwen3", "Q6_K")
    alone = native_logits(path, chunks(TOKENS[:90], 90))
    others = [TOKENS[100:][s * 11 :] for s in range(3)]
    steps = [[(1, others[0][:20]), (0, TOKENS[:40])], [(0, TOKENS[40:50]), (2, others[1][:64]), (3, others[2][:1])]]
    steps += [[(1, others[0][20 + i : 21 + i]), (0, TOKENS[50 + i : 51 + i]), (2, others[1][:1])] for i in range(40)]
    together, mine, at = native_logits(path, Steps(steps)), [], 0
    for step in steps:
        for sequence, tokens in step:
            if sequence == 0:
                mine.append(together[at : at + len(tokens)])
            at += len(tokens)
    assert_same_bits(np.concatenate(mine), alone)


@pytest.mark.parametrize("name", PASSES)
def test_leaving_out_a_pass_does_not_move_a_bit(name: str, tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", "granite", "Q8_0")
    expected = native_logits(path, chunks(TOKENS[:40], 40))
    assert_same_bits(native_logits(path, chunks(TOKENS[:40], 40), skip=(name,)), expected)


@pytest.mark.parametrize(
    "shape", [{"ffn": 17}, {"ffn": 1, "formats": {"ffn_down": "F32"}}, {"head_dim": 14, "width": 64}]
)
def test_odd_sizes_give_the_bits_of_the_reference(shape: dict[str, object], tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", format="Q8_0", **shape)
    assert_same_bits(native_logits(path, chunks(TOKENS[:40], 13)), reference_logits(path, TOKENS[:40]))


def test_a_mixture_of_formats_in_one_layer_gives_the_bits_of_the_reference(tmp_path: Path) -> None:
    path = tiny(
        tmp_path / "model.gguf",
        format="Q4_K",
        tied=False,
        formats={"attn_v": "Q6_K", "ffn_down": "F16", "output": "Q6_K"},
    )
    assert_same_bits(native_logits(path, chunks(TOKENS[:40], 40)), reference_logits(path, TOKENS[:40]))


def test_biases_everywhere_give_the_bits_of_the_reference(tmp_path: Path) -> None:
    path = tiny(tmp_path / "model.gguf", format="Q4_0", layer=ALL_BIASES)
    assert_same_bits(native_logits(path, chunks(TOKENS[:40], 40)), reference_logits(path, TOKENS[:40]))


def test_a_split_file_gives_the_bits_of_the_whole_one(tmp_path: Path) -> None:
    unsplit = tiny(tmp_path / "whole.gguf", format="Q4_1")
    parts = tiny(tmp_path / "parts.gguf", format="Q4_1", parts=3)
    assert_same_bits(native_logits(parts, chunks(TOKENS[:9], 9)), native_logits(unsplit, chunks(TOKENS[:9], 9)))
