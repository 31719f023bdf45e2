"""Small random models, written in milliseconds: any family, any format, any odd shape.

`tiny(path, "qwen3", "Q4_K", width=512)` writes a valid GGUF file with a byte-level tokenizer and a chat template. The
weights are normal with a standard deviation near 1/sqrt(columns), so activations stay near 1 and logits near 3.
The same arguments give the same bytes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from woolly import gguf
from woolly.formats import FORMATS

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "Ġ a", "Ġ s", "r e", "o n", "in g", "an d", "Ġ and", "o u")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True, slots=True)
class Tiny:
    """What `tiny` can be told; None is chosen to suit the format and the other numbers."""

    layers: int = 2
    width: int | None = None  # 64, or one block of a K type
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None  # width / heads
    ffn: int | None = None  # as the width
    vocab: int = 288
    context: int = 2048
    base: float = 10000.0
    eps: float = 1e-5
    tied: bool = True
    biases: tuple[str, ...] = ()  # of attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down
    head_norms: bool = False  # RMS norms of each head of q and k
    rope_freqs: bool = False  # the tensor that divides the angles
    rope_dim: int | None = None  # rotated dimensions of a head: all
    embed: str | None = None  # format of token_embd.weight, when it is not that of the matrices
    down: str | None = None  # format of ffn_down.weight
    head: str | None = None  # format of output.weight, for an untied head
    value: str | None = None  # format of attn_v.weight
    family_keys: Mapping[str, object] = field(default_factory=dict)  # written as FAMILY.KEY
    meta: Mapping[str, object] = field(default_factory=dict)  # written last as they are; None takes a key out
    version: int = 3
    parts: int = 0


_QKV = ("attn_q", "attn_k", "attn_v")
ALL_BIASES = (*_QKV, "attn_output", "ffn_gate", "ffn_up", "ffn_down")

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"biases": _QKV, "base": 1e6, "eps": 1e-6},
    "qwen3": {"head_norms": True, "base": 1e6, "eps": 1e-6},
    "granite": {
        "family_keys": {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.0625, "logit_scale": 4.0}
    },
    "smollm3": {"layers": 5, "base": 5e6},
    "mistral3": {
        "base": 1e6,
        "family_keys": {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 16.0,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "rope.scaling.yarn_beta_fast": 32.0,
            "rope.scaling.yarn_beta_slow": 1.0,
            "attention.temperature_scale": 0.1,
        },
    },
}


def tiny(path: str | Path, family: str = "llama", format: str = "Q4_0", seed: int = 1, **overrides: Any) -> Path:
    """Write a small random model and return its path (with `parts`, that of the first part)."""
    t = replace(Tiny(), **{**FAMILIES[family], **overrides})
    width = t.width or max(64, FORMATS[format].block)
    t = replace(t, width=width, head_dim=t.head_dim or width // t.heads, ffn=t.ffn or width)
    tensors = ((name, _tensor(name, shape, form, seed)) for name, shape, form in _shapes(t, format))
    return gguf.write(path, _meta(family, t), tensors, version=t.version, parts=t.parts)


def _shapes(t: Tiny, format: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and format of every tensor; a matrix whose rows are not whole blocks is F16."""
    assert t.width is not None and t.head_dim is not None and t.ffn is not None
    width, q, kv = t.width, t.heads * t.head_dim, t.kv_heads * t.head_dim

    def matrix(name: str, rows: int, k: int, form: str | None = None) -> tuple[str, tuple[int, ...], str]:
        form = form or format
        return name, (rows, k), form if k % FORMATS[form].block == 0 else "F16"

    yield matrix("token_embd.weight", t.vocab, width, t.embed)
    if t.rope_freqs:
        yield "rope_freqs.weight", ((t.rope_dim or t.head_dim) // 2,), "F32"
    for i in range(t.layers):
        block = f"blk.{i}."
        yield block + "attn_norm.weight", (width,), "F32"
        for name, rows, k, form in (
            ("attn_q", q, width, None),
            ("attn_k", kv, width, None),
            ("attn_v", kv, width, t.value),
            ("attn_output", width, q, None),
            ("ffn_gate", t.ffn, width, None),
            ("ffn_up", t.ffn, width, None),
            ("ffn_down", width, t.ffn, t.down),
        ):
            yield matrix(f"{block}{name}.weight", rows, k, form)
            if name in t.biases:
                yield f"{block}{name}.bias", (rows,), "F32"
        if t.head_norms:
            yield block + "attn_q_norm.weight", (t.head_dim,), "F32"
            yield block + "attn_k_norm.weight", (t.head_dim,), "F32"
        yield block + "ffn_norm.weight", (width,), "F32"
    yield "output_norm.weight", (width,), "F32"
    if not t.tied:
        yield matrix("output.weight", t.vocab, width, t.head)


def _tensor(name: str, shape: tuple[int, ...], format: str, seed: int) -> tuple[str, tuple[int, ...], Any]:
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if "norm" in name:
        values = 0.9 + 0.2 * rng.random(shape, np.float32)
    elif name == "rope_freqs.weight":
        values = np.linspace(1, 8, shape[0], dtype=np.float32)
    elif name.endswith(".bias"):
        values = np.float32(0.1) * rng.standard_normal(shape, np.float32)
    else:
        # Branches stronger than the embedding: a tied head must not simply name the token that it was given.
        gain = 3 if name.startswith(("token_embd", "output")) or "attn_output" in name or "ffn_down" in name else 1
        values = rng.standard_normal(shape, np.float32) * np.float32(gain / math.sqrt(shape[-1]))
    return format, shape, FORMATS[format].encode(values.reshape(-1, shape[-1])).reshape(-1)


def _meta(family: str, t: Tiny) -> dict[str, object]:
    keys: dict[str, object] = {
        "block_count": t.layers,
        "context_length": t.context,
        "embedding_length": t.width,
        "feed_forward_length": t.ffn,
        "attention.head_count": t.heads,
        "attention.head_count_kv": t.kv_heads,
        "rope.freq_base": float(t.base),
        "attention.layer_norm_rms_epsilon": float(t.eps),
        "rope.dimension_count": t.rope_dim or t.head_dim,
        "attention.key_length": t.head_dim,
        "attention.value_length": t.head_dim,
        "vocab_size": t.vocab,
        **t.family_keys,
    }
    meta: dict[str, object] = {
        "general.architecture": family,
        "general.type": "model",
        "general.name": f"tiny {family}",
        **{f"{family}.{key}": value for key, value in keys.items()},
        **_tokenizer(t.vocab),
        **t.meta,
    }
    return {key: value for key, value in meta.items() if value is not None}


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]


def _tokenizer(vocab: int) -> dict[str, object]:
    tokens = byte_letters() + [merge.replace(" ", "") for merge in MERGES] + list(CONTROL)
    if vocab < len(tokens):
        raise ValueError(f"a tiny vocabulary has at least {len(tokens)} tokens, not {vocab}")
    types = np.array([1] * (len(tokens) - len(CONTROL)) + [3] * len(CONTROL) + [1] * (vocab - len(tokens)), np.int32)
    start, end = tokens.index("<|im_start|>"), tokens.index("<|im_end|>")
    tokens += [f"Ġw{i}" for i in range(len(tokens), vocab)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": start,
        "tokenizer.ggml.eos_token_id": end,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }
