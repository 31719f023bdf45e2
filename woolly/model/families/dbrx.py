"""DBRX."""

from __future__ import annotations

from woolly.model.blocks.layers import clamped, feed, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layer norms without bias; queries, keys and values are clamped; experts."""
    table, how = g.rope_table(m.rope, neox=True), m.mixture()
    most = m.keys.real("attention.clamp_kqv", least=0.0)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = clamped(g, qkv(g, w, g.layer_norm(x, w.attn_norm)), most)
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.layer_norm(x, w.attn_output_norm), how))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x, tied=False))
