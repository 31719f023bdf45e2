"""PLaMo 1 and 3."""

from __future__ import annotations

from woolly.model.builder import Builder
from woolly.model.layers import gated_ffn, head, head_normed, output, qkv, rotated
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Attention and the gated network read one norm and are added together. PLaMo 1."""
    table = g.rope_table(m.rope, halves=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        q, k = rotated(g, w, q, k, table)
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), gated_ffn(g, w, h))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_plamo3(m: Meta, g: Builder) -> None:
    """Norms before and after both branches, and of heads; layers with a window have angles of their own."""
    far, near = g.rope_table(m.rope, halves=True), g.local_rope_table(m.local_rope, halves=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(8)):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, *head_normed(g, w, q, k), near if w.window else far)
        a = output(g, w, g.attend(w, q, k, v))
        x = g.add(x, g.rms_norm(a, _norm(g, w.post_attention_norm)))
        y = gated_ffn(g, w, g.rms_norm(x, w.ffn_norm))
        x = g.add(x, g.rms_norm(y, _norm(g, w.post_ffw_norm)))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def _norm(g: Builder, name: str) -> str:
    """Files may leave the end of these names out."""
    return name if g.has(name) else name.removesuffix(".weight")
