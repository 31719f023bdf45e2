"""Grok 1 and 2."""

from __future__ import annotations

import math

from woolly.model.blocks.layers import feed, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Norms before and after both branches; scores are capped; experts of GELU, and a network beside them in some."""
    keys = m.keys
    table, how = g.rope_table(m.rope, neox=True), m.mixture()
    scale = keys.scale("attention.output_scale", 0.08838834764831845)
    cap = keys.real("attn_logit_softcapping", 0.0, default=30.0)
    keys.get("router_logit_softcapping")  # the models were trained without it
    x = g.scale(g.embed(), keys.scale("embedding_scale", 78.38367176906169))  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        a = output(g, w, g.attend(w, q, k, v, scale=scale, cap=cap))
        x = g.add(x, g.rms_norm(a, w.attn_output_norm))
        h = g.rms_norm(x, w.ffn_norm)
        y = feed(g, w, h, how, "gelu")
        if g.has(w.ffn_up) and g.has(w.ffn_gate_inp):
            y = g.scale(g.add(y, gated_ffn(g, w, h, "gelu")), math.sqrt(0.5))
        x = g.add(x, g.rms_norm(y, w.layer_output_norm if g.has(w.layer_output_norm) else w.post_ffw_norm))
    y = head(g, m, g.rms_norm(g.take(x), "output_norm.weight"))
    y = g.scale(y, keys.scale("logit_scale", 0.5773502691896257))
    g.logits(g.soft_cap(y, keys.real("final_logit_softcapping", 0.0, default=0.0)))
