"""Arcee."""

from __future__ import annotations

from woolly.model.blocks.layers import head, output, plain_ffn, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with a network of squared ReLU without gate."""
    table = g.rope_table(m.rope, neox=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, plain_ffn(g, w, g.rms_norm(x, w.ffn_norm), "relu2"))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
