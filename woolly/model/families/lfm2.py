"""LFM 2, dense and of experts."""

from __future__ import annotations

from woolly.limits import LIMITS
from woolly.model.blocks.layers import feed, head, head_normed, output, qkv, rotated
from woolly.model.blocks.recurrence import short_conv
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layers without heads of keys are short convolutions, the others attend with normed heads."""
    taps = m.keys.count("shortconv.l_cache", LIMITS.taps, least=2)
    table, how = g.rope_table(m.rope, neox=True), m.mixture(by_key=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        if w.kv_heads:
            q, k, v = qkv(g, w, h)
            q, k = rotated(g, w, *head_normed(g, w, q, k), table)
            x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        else:
            x = g.add(x, short_conv(g, w, h, taps))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    g.logits(head(g, m, g.rms_norm(g.take(x), "token_embd_norm.weight")))
