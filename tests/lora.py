"""Adapters for small models: random ones for a model's file, and the model into which they were merged."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from woolly import gguf
from woolly.gguf import GgufFile
from woolly.gguf.tensor_types import FORMATS
from woolly.model.ops.numerics import F32

LINEAR = (
    *("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"),
    *("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
)


def adapter(
    path: Path,
    base: Path,
    *,
    seed: int = 1,
    rank: int = 4,
    alpha: float = 8.0,
    only: tuple[str, ...] = LINEAR,
    formats: tuple[str, str] = ("F32", "F16"),
    size: float = 0.5,
    meta: Mapping[str, Any] | None = None,
) -> Path:
    """Write a LoRA for the tensors of a model whose names end so; size 1 is as large as they are."""
    tensors: dict[str, tuple[str, tuple[int, ...], Any]] = {}
    with gguf.open(base) as file:
        architecture = file.meta["general.architecture"]
        for name, info in file.tensors.items():
            if not name.endswith(only):
                continue
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            n, k = info.shape
            factor = size * (rank / alpha if alpha else 1.0) / np.sqrt(k * rank)
            for end, shape, format, by in (("a", (rank, k), formats[0], factor), ("b", (n, rank), formats[1], 1.0)):
                values = (by * rng.standard_normal(shape)).astype(np.float32)
                fits = format if shape[1] % FORMATS[format].block == 0 else "F32"
                tensors[f"{name}.lora_{end}"] = (fits, shape, FORMATS[fits].encode(values).reshape(-1))
    keys = {
        "general.architecture": architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": np.float32(alpha),
    } | dict(meta or {})
    return gguf.write(path, {key: value for key, value in keys.items() if value is not None}, tensors)


def merged(path: Path, base: Path, scales: Mapping[Path, float]) -> Path:
    """The model with its matrices in F32 and the adapters added to them, in float64."""
    files = {gguf.open(each): scale for each, scale in scales.items()}
    with gguf.open(base) as file:
        tensors = {name: _merged(name, file, files) for name in file.tensors}
        meta = {key: file.meta[key] for key in file.meta}
        return gguf.write(path, meta, tensors)


def _merged(name: str, file: GgufFile, adapters: Mapping[GgufFile, float]) -> tuple[str, tuple[int, ...], Any]:
    shape = file.tensors[name].shape
    summed = values(file, name).astype(np.float64).reshape(shape)
    for each, scale in adapters.items():
        if f"{name}.lora_a" in each.tensors:
            a, b = values(each, f"{name}.lora_a"), values(each, f"{name}.lora_b")
            alpha = float(each.meta["adapter.lora.alpha"])  # type: ignore[arg-type]
            summed += scale * (alpha / len(a) if alpha else 1.0) * (b.astype(np.float64) @ a.astype(np.float64))
    return "F32", shape, summed.astype(np.float32).reshape(-1)


def values(file: GgufFile, name: str) -> F32:
    info = file.tensors[name]
    format = FORMATS[info.format]
    raw = np.frombuffer(file.data(name), np.uint8).reshape(-1, format.row_bytes(info.shape[-1]))
    return format.decode(raw, info.shape[-1])
