"""GLM 4 and ChatGLM."""

from __future__ import annotations

from woolly.model.blocks.layers import gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta, read_sections, sectioned


def build(m: Meta, g: Builder) -> None:
    """Norms before and after both branches; RoPE on a part of each head, of halves where angles have sections."""
    neox = sum(n > 0 for n in read_sections(m.keys)) >= 2
    table = g.rope_table(sectioned(m.rope, m.keys) if neox else m.rope, neox=neox)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, g.rms_norm(output(g, w, g.attend(w, q, k, v)), w.post_attention_norm))
        x = g.add(x, g.rms_norm(gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)), w.post_ffw_norm))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
