"""OLMo 1."""

from __future__ import annotations

from woolly.model.blocks.layers import clamped, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama, with layer norms that have no weights; queries, keys and values are clamped."""
    table, most = g.rope_table(m.rope, neox=False), m.keys.real("attention.clamp_kqv", least=0.0, default=0.0)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = clamped(g, qkv(g, w, g.layer_norm(x)), most)
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.layer_norm(x)))
    g.logits(head(g, m, g.layer_norm(g.take(x))))
