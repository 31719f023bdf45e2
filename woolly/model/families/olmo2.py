"""OLMo 2 and its mixture of experts OLMoE."""

from __future__ import annotations

from woolly.model.blocks.layers import feed, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Norms after attention and after the feed-forward network instead of before; whole rows of queries and keys are
    normed before they are rotated."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, x)
        q, k = rotated(g, w, g.rms_norm(q, w.attn_q_norm), g.rms_norm(k, w.attn_k_norm), table)
        x = g.add(x, g.rms_norm(output(g, w, g.attend(w, q, k, v)), w.post_attention_norm))
        x = g.add(x, g.rms_norm(gated_ffn(g, w, x), w.post_ffw_norm))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_experts(m: Meta, g: Builder, *, renormalized: bool = False, by_key: bool = False) -> None:
    """OLMoE and MiniMax M2: norms before, as in Llama, and experts."""
    table, how = g.rope_table(m.rope, neox=True), m.mixture(renormalized=renormalized, by_key=by_key)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, g.rms_norm(q, w.attn_q_norm), g.rms_norm(k, w.attn_k_norm), table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
