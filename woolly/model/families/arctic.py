"""Snowflake Arctic."""

from __future__ import annotations

from woolly.model.blocks.layers import feed, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with a small network; experts, which read the layer's input, are added at its end."""
    table, how = g.rope_table(m.rope, neox=False), m.mixture()
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        y = g.add(x, output(g, w, g.attend(w, q, k, v)))
        y = g.add(y, gated_ffn(g, w, g.rms_norm(y, w.ffn_norm), ffn=g.width))
        x = g.add(y, feed(g, w, g.rms_norm(x, w.ffn_norm_exps), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
