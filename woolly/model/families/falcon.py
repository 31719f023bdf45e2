"""Falcon 7B and 40B."""

from __future__ import annotations

from woolly.model.blocks.layers import head, output, plain_ffn, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layer norms; attention and GELU without gate are added together; they read one norm, or one each."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.layer_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, g.layer_norm(x, w.attn_norm_2) if g.has(w.attn_norm_2) else h)
        q, k = rotated(g, w, q, k, table)
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), plain_ffn(g, w, h, "gelu"))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
