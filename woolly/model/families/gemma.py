"""Gemma 1, 2 and 3, and the encoder made of the third."""

from __future__ import annotations

import math

from woolly.model.blocks.endings import embedding
from woolly.model.blocks.layers import gated_ffn, head, head_normed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta
from woolly.model.operands import Node


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves and gated GELU; embeddings are multiplied by the root of the width. Gemma 1."""
    table = g.rope_table(m.rope, neox=True)
    x = g.scale(g.embed(), m.sqrt_width)  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm), "gelu"))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_gemma2(m: Meta, g: Builder) -> None:
    """Norms before and after both branches; every other layer has a window; scores and logits are capped."""
    table = g.rope_table(m.rope, neox=True)
    cap = m.keys.real("attn_logit_softcapping", 0.0, default=50.0)
    last = m.keys.real("final_logit_softcapping", 0.0, default=30.0)
    x = g.scale(g.embed(), m.sqrt_width)  # [rows, width]
    for w in g.blocks(m.windows(2, default=4096)):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        a = output(g, w, g.attend(w, q, k, v, scale=_scale(m), cap=cap))
        x = g.add(x, g.rms_norm(a, w.post_attention_norm))
        y = gated_ffn(g, w, g.rms_norm(x, w.ffn_norm), "gelu")
        x = g.add(x, g.rms_norm(y, w.post_ffw_norm))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(g.soft_cap(head(g, m, x), last))


def build_gemma3(m: Meta, g: Builder) -> None:
    """As Gemma 2 without caps of scores; heads of queries and keys are normed; five of six layers have a window, and
    another RoPE base."""
    last = m.keys.real("final_logit_softcapping", 0.0, default=0.0)
    x = g.rms_norm(g.take(_layers(m, g)), "output_norm.weight")
    g.logits(g.soft_cap(head(g, m, x), last))


def build_embedding(m: Meta, g: Builder) -> None:
    """As Gemma 3, but every row sees all, or a window around it."""
    embedding(g, m, _layers(m, g), lambda y: g.rms_norm(y, "output_norm.weight"))


def _layers(m: Meta, g: Builder) -> Node:
    """All layers of Gemma 3."""
    global_rope, local_rope = g.rope_table(m.rope, neox=True), g.local_rope_table(m.local_rope, neox=True)
    x = g.scale(g.embed(), m.sqrt_width)  # [rows, width]
    for w in g.blocks(m.windows(6)):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, *head_normed(g, w, q, k), local_rope if w.window else global_rope)
        a = output(g, w, g.attend(w, q, k, v, scale=_scale(m)))
        x = g.add(x, g.rms_norm(a, w.post_attention_norm))
        y = gated_ffn(g, w, g.rms_norm(x, w.ffn_norm), "gelu")
        x = g.add(x, g.rms_norm(y, w.post_ffw_norm))
    return x


def _scale(m: Meta) -> float:
    """1 / sqrt(width / heads) in the largest Gemma 2 and Gemma 3 (46 and 62 layers), else that of the head size."""
    largest = {"gemma2": 46, "gemma3": 62}.get(m.architecture)
    return 1.0 / math.sqrt(m.width / m.heads[0]) if m.layers == largest else m.attention_scale
