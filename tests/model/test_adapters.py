"""Adapters: what a file may be, and that a product with one is a product with the merged weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lora import LINEAR, adapter, merged
from tests.tiny import tiny
from woolly import gguf
from woolly.device.cpu import TARGET
from woolly.errors import FileError, UnsupportedError, WoollyError
from woolly.model import EXACT, Adapter, Graph, Reference, build, read_adapter
from woolly.plan import add_deltas, optimise

TOKENS = np.random.default_rng(3).integers(0, 256, 24).tolist()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("base") / "base.gguf", format="Q4_0", tied=False)


def read(path: Path, base: Path, name: str = "it") -> Adapter:
    with gguf.open(base) as model, gguf.open(path) as file:
        return read_adapter(file, name, build(model), model)


def logits(base: Path, scales: dict[Path, float], *, fused: bool = False, **ops: Any) -> np.ndarray[Any, Any]:
    with gguf.open(base) as file:
        graph: Graph = build(file)
        adapters = [read(path, base, path.stem) for path in scales]
        graph = optimise(graph, TARGET, kv="f32") if fused else graph
        graph, matrices = add_deltas(graph, adapters)
        spans, by = [[0, len(TOKENS), 0, -1, 1]], [list(scales.values())]
        want = np.arange(len(TOKENS))
        return Reference(graph, file, matrices=matrices, **ops).run(TOKENS, spans, want, scales=by)


@pytest.mark.parametrize("scale", [1.0, -0.3])
def test_a_model_with_adapters_is_the_model_into_which_they_were_merged(
    base: Path, tmp_path: Path, scale: float
) -> None:
    scales = {
        adapter(tmp_path / "a.gguf", base, seed=1, rank=5, only=(*LINEAR, "output.weight")): scale,
        adapter(
            tmp_path / "b.gguf", base, seed=2, rank=32, alpha=0.0, size=0.1, only=("attn_k.weight", "ffn_up.weight")
        ): 0.5,
    }
    with gguf.open(merged(tmp_path / "merged.gguf", base, scales)) as file:
        reference = Reference(build(file), file, ops=EXACT)
        expected = reference.run(TOKENS, [[0, len(TOKENS), 0]], np.arange(len(TOKENS)))
    adapted = logits(base, scales)
    plain = logits(base, dict.fromkeys(scales, 0.0))
    assert np.abs(plain - expected).max() > 0.5, "the adapters matter"
    np.testing.assert_allclose(adapted, expected, atol=2e-4)
    with gguf.open(base) as file:
        own = Reference(optimise(build(file), TARGET, kv="f32"), file)
        bound = np.abs(own.run(TOKENS, [[0, len(TOKENS), 0]], np.arange(len(TOKENS))) - plain).max()
    assert np.abs(logits(base, scales, fused=True) - expected).max() < 2 * bound, "within the error of integer inputs"


@pytest.mark.parametrize("format", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_an_adapter_may_be_of_any_type(base: Path, tmp_path: Path, format: str) -> None:
    path = adapter(tmp_path / "a.gguf", base, rank=32, formats=(format, format))
    loaded = read(path, base)
    assert {delta.rank for delta in loaded.deltas.values()} == {32}
    with gguf.open(base) as file:
        assert loaded.deltas.keys() == {name for name in file.tensors if name.endswith(LINEAR)}


def test_adapters_that_differ_have_other_digests(base: Path, tmp_path: Path) -> None:
    paths = [adapter(tmp_path / f"{seed}.gguf", base, seed=seed) for seed in (1, 2)]
    again = adapter(tmp_path / "again.gguf", base, seed=1)
    other = adapter(tmp_path / "alpha.gguf", base, seed=1, alpha=4.0, size=0.25)
    digests = [read(path, base).digest for path in (*paths, again, other)]
    assert digests[0] == digests[2] and len(set(digests)) == 3


def written(path: Path, base: Path, meta: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> Path:
    keys = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": np.float32(8),
    }
    rows = {name: ("F32", shape, np.ones(shape, np.float32).reshape(-1)) for name, shape in tensors.items()}
    return gguf.write(path, {key: value for key, value in (keys | meta).items() if value is not None}, rows)


Q = "blk.0.attn_q.weight"


def of(tensor: str) -> dict[str, tuple[int, ...]]:
    return {f"{tensor}.lora_a": (4, 64), f"{tensor}.lora_b": (64, 4)}


GOOD = of(Q)


@pytest.mark.parametrize(
    ("meta", "tensors", "kind", "message"),
    [
        ({"general.type": "model"}, GOOD, FileError, "no adapter"),
        ({"general.type": None}, GOOD, FileError, "no adapter"),
        ({"adapter.type": "ia3"}, GOOD, UnsupportedError, "'ia3'"),
        ({"adapter.alora.invocation_tokens": [1, 2]}, GOOD, UnsupportedError, "aLoRA"),
        ({"adapter.lora.alpha": None}, GOOD, FileError, "adapter.lora.alpha"),
        ({"adapter.lora.alpha": "8"}, GOOD, FileError, "adapter.lora.alpha"),
        ({"adapter.lora.alpha": np.float32("nan")}, GOOD, FileError, "adapter.lora.alpha"),
        ({"general.architecture": "qwen3"}, GOOD, FileError, "'qwen3'.*'llama'"),
        ({}, {}, FileError, "no tensors"),
        ({}, GOOD | {"rope.weight": (4,)}, FileError, "'rope.weight'"),
        ({}, {f"{Q}.lora_a": (4, 64)}, FileError, "lora_b' is missing"),
        ({}, {f"{Q}.lora_b": (64, 4)}, FileError, "lora_a' is missing"),
        ({}, {f"{Q}.lora_a": (4, 32), f"{Q}.lora_b": (64, 4)}, FileError, "attn_q.*4 x 32.*64 x 64"),
        ({}, {f"{Q}.lora_a": (4, 64), f"{Q}.lora_b": (32, 4)}, FileError, "32 x 4 times 4 x 64.*64 x 64"),
        ({}, {f"{Q}.lora_a": (4, 64), f"{Q}.lora_b": (64, 8)}, FileError, "64 x 8 times 4 x 64, which is no product"),
        ({}, {f"{Q}.lora_a": (64,), f"{Q}.lora_b": (64, 4)}, FileError, "attn_q"),
        ({}, of("blk.9.attn_q.weight"), FileError, "does not have"),
        ({}, of("token_embd.weight"), UnsupportedError, "token_embd"),
        ({}, of("output_norm.weight"), UnsupportedError, "output_norm"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused_by_name_and_shape(
    base: Path, tmp_path: Path, meta: dict[str, Any], tensors: dict[str, Any], kind: type[WoollyError], message: str
) -> None:
    path = written(tmp_path / "wrong.gguf", base, meta, tensors)
    with pytest.raises(kind, match=message) as refused:
        read(path, base)
    assert "\n" not in str(refused.value)


def test_an_adapter_of_an_expert_is_refused(tmp_path: Path) -> None:
    experts = {
        "ffn_gate_inp.weight": (4, "width"),
        **{f"ffn_{what}.weight": None for what in ("gate", "up", "down")},
        "ffn_gate_exps.weight": (4, "ffn", "width"),
        "ffn_up_exps.weight": (4, "ffn", "width"),
        "ffn_down_exps.weight": (4, "width", "ffn"),
    }
    base = tiny(tmp_path / "moe.gguf", layer=experts, family_keys={"expert_count": 4, "expert_used_count": 2})
    name = "blk.0.ffn_up_exps.weight"
    path = written(tmp_path / "a.gguf", base, {}, of(name))
    with pytest.raises(UnsupportedError, match="ffn_up_exps"):
        read(path, base)


def test_a_product_that_became_another_op_is_refused_by_its_tensor(base: Path, tmp_path: Path) -> None:
    path = adapter(tmp_path / "a.gguf", base)
    with gguf.open(base) as file:
        graph = build(file)
        changed = replace(graph, nodes=tuple(node for node in graph.nodes if node.inputs[1:2] != (Q,)))
        with pytest.raises(UnsupportedError, match="attn_q"):
            add_deltas(changed, [read(path, base)])


def test_a_value_that_is_no_number_is_refused_with_its_tensor(base: Path, tmp_path: Path) -> None:
    path = adapter(tmp_path / "a.gguf", base)
    with gguf.open(path) as file:
        info = file.tensors[f"{Q}.lora_a"]
        at = info.offset
    raw = bytearray(path.read_bytes())
    raw[at : at + 4] = np.float32(np.nan).tobytes()
    path.write_bytes(raw)
    with pytest.raises(FileError, match="lora_a' holds a value"):
        read(path, base)
