"""Deci and Nemotron Super: Llama whose layers differ in size."""

from __future__ import annotations

from woolly.model.blocks.layers import gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama; a layer may have no heads (no attention), no heads of keys (one product in its place), or no network
    (it is dropped)."""
    table = g.rope_table(m.rope, neox=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        if w.heads:
            h = g.rms_norm(x, w.attn_norm)
            if w.kv_heads:
                q, k, v = qkv(g, w, h)
                q, k = rotated(g, w, q, k, table)
                h = g.attend(w, q, k, v)
            x = g.add(x, output(g, w, h))
        if w.ffn:
            x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
