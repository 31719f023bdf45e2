"""Baichuan 1 and 2, and Refact."""

from __future__ import annotations

from woolly.model.blocks.layers import alibi, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta

DEEP = 40  # layers of the larger models, which have ALiBi


def build(m: Meta, g: Builder) -> None:
    """As Llama; the larger models and Refact have ALiBi instead of RoPE."""
    use_rope = m.architecture == "baichuan" and m.layers != DEEP
    table = g.rope_table(m.rope, neox=False) if use_rope else ""
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        if use_rope:
            q, k = rotated(g, w, q, k, table)
        slopes = "" if use_rope else alibi(g, w.heads, 8.0)
        x = g.add(x, output(g, w, g.attend(w, q, k, v, slopes=slopes)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
