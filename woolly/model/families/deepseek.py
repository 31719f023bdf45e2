"""DeepSeek 1, Ling 1 and ERNIE 4.5: Llama with experts."""

from __future__ import annotations

from woolly.model.builder import Builder
from woolly.model.layers import feed, head, output, qkv, rotated
from woolly.model.meta import Meta


def build(m: Meta, g: Builder, *, renormalized: bool | None = False, scaled: bool = True, tied: bool = True) -> None:
    """As Llama; after first layers without, each has experts and shared ones beside them."""
    table, how = g.rope_table(m.rope, halves=False), m.mixture(renormalized=renormalized, scaled=scaled)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x, tied=tied))
