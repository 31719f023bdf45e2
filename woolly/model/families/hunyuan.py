"""Hunyuan, dense and of experts, and Maincoder: norms of heads after RoPE."""

from __future__ import annotations

from dataclasses import replace

from woolly.model.blocks.layers import feed, head, head_normed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder, *, neox: bool = True) -> None:
    """As Llama; each head of queries and keys is normed after it was rotated."""
    rope, alpha = m.rope, m.keys.real("rope.scaling.alpha", least=0.0, most=1e9, default=0.0)
    if alpha:
        m.keys.need(m.head_dim > 2, "attention.key_length", m.head_dim, "more than 2, where angles are stretched")
        rope = replace(rope, base=rope.base * alpha ** (m.head_dim / (m.head_dim - 2)))
        m.keys.need(1.0 < rope.base <= 1e30, "rope.scaling.alpha", alpha, "a factor that leaves the base above 1")
    table, how = g.rope_table(rope, neox=neox), m.mixture()
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = head_normed(g, w, *rotated(g, w, q, k, table))
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
