"""Command R, Command R7B and Command A, and their mixture of experts."""

from __future__ import annotations

from woolly.model.blocks.layers import feed, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta
from woolly.model.operands import Node


def build(m: Meta, g: Builder) -> None:
    """Layer norms without bias; attention and the gated network read one norm and are added together. Command R."""
    table = g.rope_table(m.rope, neox=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.layer_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        if g.has(w.attn_q_norm):
            q, k = g.layer_norm(q, w.attn_q_norm, heads=w.heads), g.layer_norm(k, w.attn_k_norm, heads=w.kv_heads)
        q, k = rotated(g, w, q, k, table)
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), gated_ffn(g, w, h))
    g.logits(_logits(m, g, g.layer_norm(g.take(x), "output_norm.weight")))


def build_cohere2(m: Meta, g: Builder) -> None:
    """Three of four layers have a window and RoPE, the others neither."""
    table = g.rope_table(m.rope, neox=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(4)):
        h = g.layer_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        if w.window:
            q, k = rotated(g, w, q, k, table)
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), gated_ffn(g, w, h))
    g.logits(_logits(m, g, g.layer_norm(g.take(x), "output_norm.weight")))


def build_experts(m: Meta, g: Builder) -> None:
    """As Cohere 2; the first of four layers is global. The first layers, without experts, all have RoPE; routed and
    shared experts count half each."""
    norm = g.layer_norm if m.keys.get("attention.layer_norm_epsilon") is not None else g.rms_norm
    table = g.rope_table(m.rope, neox=False)
    how = m.mixture("sigmoid", renormalized=None, by_key=True, scaled=True)
    dense = m.keys.count("leading_dense_block_count", m.layers, 0, least=0)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(4, global_first=True)):
        h = norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        if w.window or w.index < dense:
            q, k = rotated(g, w, q, k, table)
        y = feed(g, w, h, how)
        y = g.scale(y, 0.5) if g.has(w.ffn_up_shexp) else y
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), y)
    g.logits(_logits(m, g, norm(g.take(x), "output_norm.weight")))


def _logits(m: Meta, g: Builder, x: Node) -> Node:
    return g.scale(head(g, m, x), m.keys.scale("logit_scale", 1.0))
