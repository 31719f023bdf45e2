"""Qwen 1 and 2, dense and of experts."""

from __future__ import annotations

from woolly.model.blocks.endings import ending
from woolly.model.blocks.layers import feed, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta, sectioned


def build(m: Meta, g: Builder) -> None:
    """As Llama, with rotated halves and biases on q, k and v."""
    table = g.rope_table(sectioned(m.rope, m.keys), neox=True)
    how = m.mixture(renormalized=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm), bias="required")
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    ending(g, m, x)


def build_qwen(m: Meta, g: Builder) -> None:
    """Qwen 1: the file's length of the feed-forward network is that of gate and up together."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm), bias="required")
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm), ffn=w.ffn // 2))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
