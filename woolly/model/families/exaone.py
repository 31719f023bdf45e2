"""EXAONE 4 and its mixture of experts."""

from __future__ import annotations

from woolly.model.blocks.layers import feed, gated_ffn, head, head_normed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta

LARGE = 64  # layers of the model that has windows: files do not say so


def build(m: Meta, g: Builder) -> None:
    """Norms after both branches instead of before; heads are normed. The largest model, of 64 layers, has windows in
    three of four layers, and RoPE in these alone."""
    table = g.rope_table(m.rope, neox=True)
    windows = m.windows(4, default=4096)
    large = m.layers == LARGE
    x = g.embed()  # [rows, width]
    for w in g.blocks(windows if large else ()):
        q, k, v = qkv(g, w, x)
        q, k = head_normed(g, w, q, k)
        if w.window or not large:
            q, k = rotated(g, w, q, k, table)
        x = g.add(x, g.rms_norm(output(g, w, g.attend(w, q, k, v)), w.post_attention_norm))
        x = g.add(x, g.rms_norm(gated_ffn(g, w, x), w.post_ffw_norm))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_experts(m: Meta, g: Builder) -> None:
    """Norms before, as in Llama; three of four layers have a window and RoPE, the others neither."""
    table = g.rope_table(m.rope, neox=True)
    how = m.mixture("sigmoid", renormalized=None, by_key=True, scaled=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(4)):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = head_normed(g, w, q, k)
        if w.window:
            q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
