"""GPT-NeoX: Pythia, Dolly and others."""

from __future__ import annotations

from woolly.model.blocks.layers import head, output, plain_ffn, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layer norms, GELU without gate; both branches read the layer's input where the file says so."""
    table, parallel = g.rope_table(m.rope, neox=True), m.keys.flag("use_parallel_residual", False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.layer_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        y = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(y, plain_ffn(g, w, g.layer_norm(x if parallel else y, w.ffn_norm), "gelu"))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x, tied=False))
