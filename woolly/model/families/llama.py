"""Llama and its kin: Llama 2 and 3, Mistral, Mixtral, SmolLM2, and families that differ by a switch."""

from __future__ import annotations

from woolly.model.blocks.endings import ending
from woolly.model.blocks.layers import feed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(
    m: Meta,
    g: Builder,
    *,
    neox: bool = False,
    tied: bool = True,
    ffn_norm: str = "ffn_norm",
    last: str = "output_norm",
    renormalized: bool | None = True,
    scaled: bool = False,
) -> None:
    """Pre-norm, grouped-query attention with rotated neighbours (or halves), gated SiLU or experts of it."""
    table = g.rope_table(m.rope, neox=neox)
    how = m.mixture(renormalized=renormalized, scaled=scaled)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))  # [rows, heads * head_dim]
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, getattr(w, ffn_norm)), how))
    ending(g, m, x, norm=last, tied=tied)
