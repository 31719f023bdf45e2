"""Ministral 3 and Mistral Small 3."""

from __future__ import annotations

from dataclasses import replace

from woolly.model.blocks.layers import gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama; rotated queries grow slowly with their position where the file gives a temperature."""
    log_multiplier = m.keys.real("rope.scaling.yarn_log_multiplier", least=0.0, most=1e6, default=0.0)
    table = g.rope_table(replace(m.rope, log_multiplier=log_multiplier), neox=False)
    temperature = m.temperature()
    temperature_table = g.table("temperature", temperature) if temperature else ""
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        q = g.scale_by_position(q, temperature_table) if temperature_table else q
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
