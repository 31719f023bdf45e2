"""Granite 3 and 4, dense, of experts and with state-space layers, and MiniCPM."""

from __future__ import annotations

import math

import numpy as np

from woolly.model.blocks.layers import feed, head, output, qkv, rotated
from woolly.model.blocks.recurrence import mamba2, read_state_space
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder, *, embedding: float = 1.0, residual: float = 1.0, logits: float = 1.0) -> None:
    """As Llama with four constants: the embedding, both residual branches and the scores are multiplied by theirs, the
    logits are divided by the last. The parameters are for files without them. Layers without heads of keys are
    state-space layers, and then the file says whether the others have RoPE."""
    embedding, residual = m.keys.scale("embedding_scale", embedding), m.keys.scale("residual_scale", residual)
    logits, scale = m.keys.scale("logit_scale", logits), m.keys.scale("attention.scale", m.attention_scale)
    how, hybrid = m.mixture(), 0 in m.kv_heads
    size = read_state_space(m) if hybrid else None
    use_rope = not hybrid or m.keys.flag("rope.scaling.finetuned", True)
    table = g.rope_table(m.rope, neox=False) if use_rope else ""
    x = g.scale(g.embed(), embedding)  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        if size is not None and not w.kv_heads:
            a = mamba2(g, w, h, size)
        else:
            q, k, v = qkv(g, w, h)
            q, k = rotated(g, w, q, k, table) if table else (q, k)
            a = output(g, w, g.attend(w, q, k, v, scale=scale))
        x = g.add(x, g.scale(a, residual))
        x = g.add(x, g.scale(feed(g, w, g.rms_norm(x, w.ffn_norm), how), residual))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(g.divide(head(g, m, x), logits))


def build_minicpm(m: Meta, g: Builder) -> None:
    """The constants are the family's own, unless a file has others."""
    residual, logits = (float(np.float32(c)) for c in (1.4 / math.sqrt(m.layers), 256.0 / m.width))
    build(m, g, embedding=12.0, residual=residual, logits=logits)
