"""Step 3.5."""

from __future__ import annotations

from dataclasses import replace

from woolly.model.builder import Builder
from woolly.model.layers import (
    Gate,
    activated,
    experts,
    gated_ffn,
    head,
    head_normed,
    output,
    qkv,
    rotated,
    shared_expert,
)
from woolly.model.meta import Meta

NO_LIMIT = 3e38  # below which nothing is clamped


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves, of which global layers turn one half alone; a gate for each head; layers clamp what
    their experts multiply."""
    m.keys.need(m.rope.rot % 4 == 0, "rope.dimension_count", m.rope.rot, "a multiple of 4: half of it turns")
    far = g.rope_table(replace(m.rope, rot=m.rope.rot // 2), halves=True, pairs=m.rope.rot // 2)
    near = g.local_rope_table(m.local_rope, halves=True)
    how = m.mixture("sigmoid", renormalized=None, by_key=True, scaled=True)
    limits = m.keys.reals("swiglu_clamp_exp", m.layers, 0.0)
    shared = m.keys.reals("swiglu_clamp_shexp", m.layers, 0.0)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(4)):
        h = g.rms_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        if g.has(w.attn_q_norm):
            q, k = head_normed(g, w, q, k)
        q, k = rotated(g, w, q, k, near if w.window else far)
        a = g.attend(w, q, k, v)
        if g.has(w.attn_gate):
            a = g.scale_heads(a, g.activate(g.linear(h, w.attn_gate, w.heads), "sigmoid"))
        x = g.add(x, output(g, w, a))
        h = g.rms_norm(x, w.ffn_norm)
        gate, beside = (_clamped_gate(g, limit[w.index]) for limit in (limits, shared))
        if how and g.has(w.ffn_gate_inp):
            y = experts(g, w, h, how, gate=gate)
            x = g.add(x, g.add(y, shared_expert(g, w, h, gate=beside)) if g.has(w.ffn_up_shexp) else y)
        else:
            x = g.add(x, gated_ffn(g, w, h, gate=beside))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def _clamped_gate(g: Builder, limit: float) -> Gate:
    """silu(gate) not above the limit, times up within +-limit."""
    if limit <= 1e-6:
        return activated(g, "silu")
    return lambda gate, up: g.mul(g.clamp(g.activate(gate, "silu"), -NO_LIMIT, limit), g.clamp(up, -limit, limit))
