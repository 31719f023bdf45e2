"""gpt-oss."""

from __future__ import annotations

from woolly.model.blocks.layers import experts, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta
from woolly.model.operands import Node

ALPHA, LIMIT = 1.702, 7.0  # of the gate: properties of the family, files do not say them


def build(m: Meta, g: Builder) -> None:
    """Biases everywhere, a sink in each head; every other layer has a window; experts with a clamped gate, weighed
    among the chosen ones."""
    table, how = g.rope_table(m.rope, neox=True), m.mixture("chosen", renormalized=False)

    def gate(gate: Node, up: Node) -> Node:
        return g.clamped_gate(gate, up, alpha=ALPHA, limit=LIMIT)

    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(2)):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v, sinks=w.attn_sinks)))
        h = g.rms_norm(x, w.post_attention_norm)
        x = g.add(x, experts(g, w, h, how, gate=gate) if how else gated_ffn(g, w, h, gate=gate))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
