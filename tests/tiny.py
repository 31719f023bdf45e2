"""Small random models, written in milliseconds: any family, any format, any odd shape.

`tiny(path, "qwen3", "Q4_K", width=512)` writes a valid GGUF file with a byte-level tokenizer and a chat template. What
a family has that Llama has not is its row of `FAMILIES`: tensors by their names and shapes, keys of the metadata. The
weights are normal with a standard deviation near 1/sqrt(columns), so activations stay near 1 and logits near 3.
The same arguments give the same bytes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from woolly import gguf
from woolly.gguf.tensor_types import FORMATS

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MERGES = ("Ġ t", "h e", "Ġt he", "i n", "e r", "a n", "Ġ a", "Ġ s", "r e", "o n", "in g", "an d", "Ġ and", "o u")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


# The tensors of a file and of each of its layers. A shape is in the words of `_sizes`, or in numbers.
Shapes = Mapping[str, tuple[str | int, ...] | None]
FILE: Shapes = {"token_embd.weight": ("vocab", "width"), "output_norm.weight": ("width",)}
LAYER: Shapes = {
    "attn_norm.weight": ("width",),
    "attn_q.weight": ("q", "width"),
    "attn_k.weight": ("kv", "width"),
    "attn_v.weight": ("kv", "width"),
    "attn_output.weight": ("width", "q"),
    "ffn_norm.weight": ("width",),
    "ffn_gate.weight": ("ffn", "width"),
    "ffn_up.weight": ("ffn", "width"),
    "ffn_down.weight": ("width", "ffn"),
}
QKV_BIASES: Shapes = {"attn_q.bias": ("q",), "attn_k.bias": ("kv",), "attn_v.bias": ("kv",)}
ALL_BIASES: Shapes = {
    **QKV_BIASES,
    "attn_output.bias": ("width",),
    "ffn_gate.bias": ("ffn",),
    "ffn_up.bias": ("ffn",),
    "ffn_down.bias": ("width",),
}


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
    layer: Shapes = field(default_factory=dict)  # tensors of a layer beside those of LAYER; None leaves one out
    file: Shapes = field(default_factory=dict)  # tensors of the file beside those of FILE
    formats: Mapping[str, str] = field(default_factory=dict)  # of the weights so named, {"ffn_down": "Q6_K"}
    rope_dim: int | None = None  # rotated dimensions of a head: all
    family_keys: Mapping[str, object] = field(default_factory=dict)  # written as FAMILY.KEY
    meta: Mapping[str, object] = field(default_factory=dict)  # written last as they are; None takes a key out
    values: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # of the tensors whose names end so
    version: int = 3
    parts: int = 0


FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"layer": QKV_BIASES, "base": 1e6, "eps": 1e-6},
    "qwen3": {
        "layer": {"attn_q_norm.weight": ("head",), "attn_k_norm.weight": ("head",)},
        "base": 1e6,
        "eps": 1e-6,
    },
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
    tensors = ((name, _tensor(name, shape, form, seed, t.values)) for name, shape, form in _shapes(t, format))
    return gguf.write(path, _meta(family, t), tensors, version=t.version, parts=t.parts)


def damaged(path: str | Path) -> Path:
    """Write a model whose header is right, and one of whose weights is no number."""
    return tiny(path, format="F32", values={"blk.0.attn_k.weight": np.full((32, 64), np.nan, np.float32)})


def scripted(path: str | Path, *script: str, control: Container[str] = (), template: str = CHATML) -> Path:
    """Write a model that answers every chat with these tokens, of two bytes or more and none of them twice, and ends.

    Nothing is added to the embedding of the last token, and the head knows for each embedding the token that follows.
    control: those of the tokens that are control tokens. template: its prompts end in a line break.
    """
    size = 320
    words = byte_vocabulary(size)
    tokens, kinds = list(words["tokenizer.ggml.tokens"]), words["tokenizer.ggml.token_type"].copy()
    ids = list(range(size - len(script), size))
    for id_, text in zip(ids, script, strict=True):
        tokens[id_] = text if text in control else "".join(byte_letters()[byte] for byte in text.encode())
        kinds[id_] = 3 if text in control else 1
    follows = np.full(size, words["tokenizer.ggml.eos_token_id"])
    follows[[tokens.index("Ċ"), *ids[:-1]]] = ids
    head = np.zeros((size, size), np.float32)
    head[follows, np.arange(size)] = 1
    nothing = np.zeros((size, size), np.float32)
    return tiny(
        path,
        format="F16",
        layers=1,
        width=size,
        vocab=size,
        tied=False,
        values={
            "token_embd.weight": np.eye(size, dtype=np.float32),
            "attn_output.weight": nothing,
            "ffn_down.weight": nothing,
            "output.weight": head,
        },
        meta={
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.chat_template": template,
        },
    )


def _sizes(t: Tiny) -> dict[str, int]:
    assert t.width is not None and t.head_dim is not None and t.ffn is not None
    return {
        "width": t.width,
        "vocab": t.vocab,
        "ffn": t.ffn,
        "head": t.head_dim,
        "q": t.heads * t.head_dim,
        "kv": t.kv_heads * t.head_dim,
        "angles": (t.rope_dim or t.head_dim) // 2,
    }


def _shapes(t: Tiny, format: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and format of every tensor; a vector is F32, a matrix whose rows are not whole blocks F16."""
    sizes = _sizes(t)
    layers = {f"blk.{i}.{name}": shape for i in range(t.layers) for name, shape in {**LAYER, **t.layer}.items()}
    head: Shapes = {} if t.tied else {"output.weight": ("vocab", "width")}
    for name, words in {**FILE, **layers, **head, **t.file}.items():
        if words is None:
            continue
        shape = tuple(sizes[word] if isinstance(word, str) else word for word in words)
        form = t.formats.get(name.split(".")[-2], format) if len(shape) > 1 else "F32"
        yield name, shape, form if shape[-1] % FORMATS[form].block == 0 else "F16"


def _tensor(
    name: str, shape: tuple[int, ...], format: str, seed: int, arrays: Mapping[str, NDArray[np.float32]]
) -> tuple[str, tuple[int, ...], Any]:
    own = next((values for end, values in arrays.items() if name.endswith(end)), None)
    return format, shape, _random(name, shape, format, seed) if own is None else _encoded(own, shape, format)


@lru_cache(maxsize=2000)  # many tests write the same models, and some types are slow to encode
def _random(name: str, shape: tuple[int, ...], format: str, seed: int) -> NDArray[np.uint8]:
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
    return _encoded(values, shape, format)


def _encoded(values: NDArray[np.float32], shape: tuple[int, ...], format: str) -> NDArray[np.uint8]:
    return FORMATS[format].encode(values.reshape(-1, shape[-1])).reshape(-1)


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
        **byte_vocabulary(t.vocab),
        **t.meta,
    }
    return {key: value for key, value in meta.items() if value is not None}


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]


def byte_vocabulary(vocab: int) -> dict[str, Any]:
    """The keys of a byte-level tokenizer with a chat template, for so many tokens."""
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
