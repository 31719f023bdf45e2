"""SmolLM3."""

from __future__ import annotations

from woolly.model.blocks.layers import gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta

NO_ROPE_EVERY = 4  # a property of the family: files do not say it


def build(m: Meta, g: Builder) -> None:
    """As Llama, but every fourth layer attends without rotation."""
    table = g.rope_table(m.rope, neox=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        if (w.index + 1) % NO_ROPE_EVERY:
            q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
