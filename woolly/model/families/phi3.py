"""Phi 3 and 4, and Phi 3.5's mixture of experts."""

from __future__ import annotations

from woolly.model.builder import Builder
from woolly.model.layers import feed, head, output, qkv, rotated
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves; angles have factors for short and for long contexts. Windows that files name are
    not part of the trained model and are passed over."""
    m.keys.get("attention.sliding_window")
    table, how = g.rope_table(m.rope, halves=True), m.mixture()
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
