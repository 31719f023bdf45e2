"""Step 3.5."""

from __future__ import annotations

from dataclasses import replace

from woolly.model.blocks.layers import (
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
from woolly.model.builder import Builder
from woolly.model.meta import Meta

NO_LIMIT = 3e38  # below which nothing is clamped


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves, in global layers of half as many columns; a gate for each head; clamped gates and
    ups in the experts of some layers."""
    m.keys.need(m.rope.rot % 4 == 0, "rope.dimension_count", m.rope.rot, "a multiple of 4: half of it turns")
    global_rope = g.rope_table(replace(m.rope, rot=m.rope.rot // 2), neox=True, pairs=m.rope.rot // 2)
    local_rope = g.local_rope_table(m.local_rope, neox=True)
    how = m.mixture("sigmoid", renormalized=None, by_key=True, scaled=True)
    limits = m.keys.reals("swiglu_clamp_exp", m.layers, 0.0)
    shared = m.keys.reals("swiglu_clamp_shexp", m.layers, 0.0)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(4)):
        h = g.rms_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        if g.has(w.attn_q_norm):
            q, k = head_normed(g, w, q, k)
        q, k = rotated(g, w, q, k, local_rope if w.window else global_rope)
        a = g.attend(w, q, k, v)
        if g.has(w.attn_gate):
            a = g.scale_heads(a, g.activate(g.linear(h, w.attn_gate, w.heads), "sigmoid"))
        x = g.add(x, output(g, w, a))
        h = g.rms_norm(x, w.ffn_norm)
        gate, shared_gate = (_clamped_gate(g, limit[w.index]) for limit in (limits, shared))
        if how and g.has(w.ffn_gate_inp):
            y = experts(g, w, h, how, gate=gate)
            x = g.add(x, g.add(y, shared_expert(g, w, h, gate=shared_gate)) if g.has(w.ffn_up_shexp) else y)
        else:
            x = g.add(x, gated_ffn(g, w, h, gate=shared_gate))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def _clamped_gate(g: Builder, limit: float) -> Gate:
    """silu(gate) not above the limit, times up within +-limit."""
    if limit <= 1e-6:
        return activated(g, "silu")
    return lambda gate, up: g.mul(g.clamp(g.activate(gate, "silu"), -NO_LIMIT, limit), g.clamp(up, -limit, limit))
