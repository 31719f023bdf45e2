"""MIXERS: the tensors by which a layer mixes positions: attention, or a recurrence or convolution in its place.

Sizes come from the keys of the shape's metadata, as a family reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from woolly.bench.shapes import QKV, Shape


class LayerTensor(NamedTuple):
    """A tensor of a layer; `deviation`: of its product with rows of deviation 1. Floats are never quantised."""

    role: str
    size: tuple[int, ...]
    deviation: float = 1.0
    is_float: bool = False
    suffix: str = ".weight"


def attention(shape: Shape, branch: float) -> Iterator[LayerTensor]:
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    rows = (query * (2 if shape.gated else 1), keys, keys)
    roles = {"attn_qkv": sum(rows)} if shape.fused else dict(zip(QKV, rows, strict=True))
    for role, count in roles.items():
        yield LayerTensor(role, (count, shape.width))
    yield LayerTensor("attn_output", (shape.width, query), branch)


def latent(shape: Shape, branch: float) -> Iterator[LayerTensor]:
    """Latent attention with full-rank queries and separate matrices of keys and values per head, as in newer files."""
    rank, rotated = shape.number("attention.kv_lora_rank"), shape.number("rope.dimension_count")
    keys, values = shape.number("attention.key_length_mla"), shape.number("attention.value_length_mla")
    yield LayerTensor("attn_kv_a_norm", (rank,))
    yield LayerTensor("attn_q", (shape.heads * keys, shape.width))
    yield LayerTensor("attn_kv_a_mqa", (rank + rotated, shape.width))
    yield LayerTensor("attn_k_b", (shape.heads, rank, keys - rotated))
    yield LayerTensor("attn_v_b", (shape.heads, values, rank))
    yield LayerTensor("attn_output", (shape.width, shape.heads * values), branch)


def mamba2(shape: Shape, branch: float) -> Iterator[LayerTensor]:
    inner, heads, taps = (shape.number(f"ssm.{key}") for key in ("inner_size", "time_step_rank", "conv_kernel"))
    groups = shape.number("ssm.group_count")
    states = groups * shape.number("ssm.state_size")
    yield LayerTensor("ssm_in", (2 * inner + 2 * states + heads, shape.width))
    yield LayerTensor("ssm_conv1d", (inner + 2 * states, taps), is_float=True)
    yield LayerTensor("ssm_conv1d", (inner + 2 * states,), 0.1, suffix=".bias")
    yield LayerTensor("ssm_dt", (heads,), 0.1, suffix=".bias")
    yield LayerTensor("ssm_a", (heads, 1), is_float=True, suffix="")
    yield LayerTensor("ssm_d", (heads, 1), is_float=True, suffix="")
    yield LayerTensor("ssm_norm", (groups, inner // groups), is_float=True)
    yield LayerTensor("ssm_out", (shape.width, inner), branch)


def delta(shape: Shape, branch: float) -> Iterator[LayerTensor]:
    """The gated delta rule."""
    inner, heads, taps = (shape.number(f"ssm.{key}") for key in ("inner_size", "time_step_rank", "conv_kernel"))
    state = shape.number("ssm.state_size")
    mixed = inner + 2 * shape.number("ssm.group_count") * state
    yield LayerTensor("attn_qkv", (mixed, shape.width))
    yield LayerTensor("attn_gate", (inner, shape.width))
    yield LayerTensor("ssm_conv1d", (mixed, taps), is_float=True)
    yield LayerTensor("ssm_dt", (heads,), 0.1, suffix=".bias")
    yield LayerTensor("ssm_a", (heads,), suffix="")
    yield LayerTensor("ssm_ba", (2 * heads, shape.width))
    yield LayerTensor("ssm_norm", (state,))
    yield LayerTensor("ssm_out", (shape.width, inner), branch)


def short_conv(shape: Shape, branch: float) -> Iterator[LayerTensor]:
    yield LayerTensor("shortconv.in_proj", (3 * shape.width, shape.width))
    yield LayerTensor("shortconv.conv", (shape.width, shape.number("shortconv.l_cache")), is_float=True)
    yield LayerTensor("shortconv.out_proj", (shape.width, shape.width), branch)


MIXERS: dict[str, Callable[[Shape, float], Iterator[LayerTensor]]] = {
    "attention": attention,
    "latent": latent,
    "mamba2": mamba2,
    "delta": delta,
    "short_conv": short_conv,
}
