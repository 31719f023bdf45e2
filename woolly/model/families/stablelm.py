"""StableLM 2 and 3, Orion: Llama with layer norms."""

from __future__ import annotations

from woolly.model.blocks.layers import gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with layer norms and rotated halves. Heads of queries and keys are normed where the file has weights for
    it; a network without a norm of its own reads that of attention."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.layer_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        if g.has(w.attn_q_norm):
            q, k = g.layer_norm(q, w.attn_q_norm, heads=w.heads), g.layer_norm(k, w.attn_k_norm, heads=w.kv_heads)
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.layer_norm(x, w.ffn_norm) if g.has(w.ffn_norm) else h))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
