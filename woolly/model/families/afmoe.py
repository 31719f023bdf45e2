"""Arcee Trinity."""

from __future__ import annotations

from woolly.model.blocks.layers import feed, head, head_normed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta

NO_ROPE_EVERY = 4


def build(m: Meta, g: Builder) -> None:
    """Norms before and after both branches, and of heads; three of four layers have RoPE and a window; a gate on the
    output of attention; experts."""
    table = g.rope_table(m.rope, neox=True)
    how = m.mixture("sigmoid", renormalized=None, by_key=True, scaled=True)
    x = g.scale(g.embed(), m.sqrt_width)  # [rows, width]
    for w in g.blocks(m.windows(4)):
        h = g.rms_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        q, k = head_normed(g, w, q, k)
        if (w.index + 1) % NO_ROPE_EVERY:
            q, k = rotated(g, w, q, k, table)
        a = g.attend(w, q, k, v)
        a = g.mul(g.activate(g.linear(h, w.attn_gate, a.width), "sigmoid"), a)
        x = g.add(x, g.rms_norm(output(g, w, a), w.post_attention_norm))
        y = feed(g, w, g.rms_norm(x, w.ffn_norm), how)
        x = g.add(x, g.rms_norm(y, w.post_ffw_norm))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
