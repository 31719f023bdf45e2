"""Latent attention: what is cached of a position is one short row for all heads, and the rotated part of its key.

Keys and values of a head are products of that row with the head's matrices. Queries are multiplied by the matrix of the
keys instead, and results by that of the values, so that no key and no value of a head is ever made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from woolly.limits import LIMITS
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes: of the cached row, of the rotated part beside it, and of a head's keys (without the rotated part) and
    values."""

    rank: int
    rotated: int
    keys: int
    values: int

    @property
    def scale(self) -> float:
        """What scores are multiplied by: one over the root of the size of a whole key."""
        return 1.0 / math.sqrt(self.keys + self.rotated)


def read_latent(m: Meta) -> Latent:
    """The sizes in a file; without the keys that end in `_mla`, `key_length` and `value_length` are those of a head."""
    key_size = m.keys.count("attention.key_length_mla", LIMITS.width, m.head_dim)
    m.keys.need(m.rope.rot < key_size, "rope.dimension_count", m.rope.rot, f"below {key_size}, the size of a key")
    return Latent(
        rank=m.keys.count("attention.kv_lora_rank", LIMITS.width),
        rotated=m.rope.rot,
        keys=key_size - m.rope.rot,
        values=m.keys.count("attention.value_length_mla", LIMITS.width, m.value_dim),
    )


def latent_attention(
    g: Builder, w: Block, h: Node, how: Latent, *, table: str = "", scale: float = 0.0, temperature_table: str = ""
) -> Node:
    """What attention adds to the residual stream. table: the rotary table, "" where queries and keys are not rotated.
    temperature_table: the factors that queries are scaled by, "" where they are not scaled."""
    key_size = how.keys + how.rotated
    name, x = w.attn_q, h
    if g.has(w.attn_q_a):
        name, x = w.attn_q_b, g.rms_norm(g.linear(h, w.attn_q_a, g.rows(w.attn_q_a)), w.attn_q_a_norm)
    q = g.linear(x, name, w.heads * how.keys, of=key_size, heads=w.heads)
    rotated = g.linear(x, name, w.heads * how.rotated, first=how.keys, of=key_size, heads=w.heads)
    compressed = g.linear(h, w.attn_kv_a_mqa, how.rank, of=how.rank + how.rotated)
    k = g.linear(h, w.attn_kv_a_mqa, how.rotated, first=how.rank, of=how.rank + how.rotated)
    if table:
        rotated, k = g.rope(rotated, table, heads=w.heads), g.rope(k, table, heads=1)
    both = how.keys + how.values  # rows of a head where one tensor has both of its matrices
    in_one = g.has(w.attn_kv_b)
    if in_one:
        q = g.head_linear(q, w.attn_kv_b, w.heads, how.rank, of=both, transposed=True)
    else:
        q = g.head_linear(q, w.attn_k_b, w.heads, how.rank)
    q = g.join(q, rotated, heads=w.heads)
    row = g.join(g.rms_norm(compressed, w.attn_kv_a_norm), k)
    q = g.scale_by_position(q, temperature_table) if temperature_table else q
    a = g.attend_latent(w, q, row, how.rank, scale=scale or how.scale)
    if in_one:
        a = g.head_linear(a, w.attn_kv_b, w.heads, how.values, first=how.keys, of=both)
    else:
        a = g.head_linear(a, w.attn_v_b, w.heads, how.values)
    return g.linear(a, w.attn_output, g.width)
