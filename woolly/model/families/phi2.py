"""Phi 1 and 2."""

from __future__ import annotations

from woolly.model.blocks.layers import head, output, plain_ffn, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layer norms; attention and a network of GELU without gate read one norm and are added together."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.layer_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        q, k = rotated(g, w, q, k, table)
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), plain_ffn(g, w, h, "gelu"))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x, tied=False))
