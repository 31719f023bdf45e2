"""BitNet b1.58."""

from __future__ import annotations

from woolly.model.blocks.layers import gated, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves; what goes into the last product of each branch is normed first."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.rms_norm(g.attend(w, q, k, v), w.attn_sub_norm)))
        y = g.rms_norm(gated(g, w, g.rms_norm(x, w.ffn_norm)), w.ffn_sub_norm)
        x = g.add(x, g.linear(y, w.ffn_down, g.width))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
