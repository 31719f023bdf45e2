"""Jais."""

from __future__ import annotations

from woolly.model.blocks.layers import alibi, gated_ffn, head, output, qkv
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layer norms, gated SiLU, ALiBi; scores are divided by the size of a head, not its root."""
    bias = m.keys.real("attention.max_alibi_bias", least=0.0, most=1e4, default=8.0)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.layer_norm(x, w.attn_norm))
        slopes = alibi(g, w.heads, bias)
        x = g.add(x, output(g, w, g.attend(w, q, k, v, scale=1.0 / m.head_dim, slopes=slopes)))
        x = g.add(x, gated_ffn(g, w, g.layer_norm(x, w.ffn_norm)))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
