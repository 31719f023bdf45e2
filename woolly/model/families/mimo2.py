"""MiMo 2."""

from __future__ import annotations

from woolly.model.blocks.layers import feed, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves of a part of each head; values have another size than keys. Layers with a window
    have sinks and another RoPE base; experts."""
    global_rope, local_rope = g.rope_table(m.rope, neox=True), g.local_rope_table(m.local_rope, neox=True)
    how = m.mixture("sigmoid")
    scale = m.keys.scale("attention.value_scale", 1.0)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(4)):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, local_rope if w.window else global_rope)
        a = g.attend(w, q, k, v, sinks=w.attn_sinks if g.has(w.attn_sinks) else "")
        x = g.add(x, g.scale(output(g, w, a), scale))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
