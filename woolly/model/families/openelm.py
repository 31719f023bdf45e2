"""OpenELM."""

from __future__ import annotations

from woolly.model.builder import Builder
from woolly.model.layers import gated_ffn, head, head_normed, output, qkv, rotated
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves; heads are normed, and their number and the length of the network grow with
    depth."""
    table = g.rope_table(m.rope, halves=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, *head_normed(g, w, q, k), table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
