"""Qwen3, dense and of experts, and families with the same layers: dots.llm1, Ling 2, Hunyuan 3, GLM 4.5, OpenELM."""

from __future__ import annotations

from woolly.model.blocks.endings import ending
from woolly.model.blocks.layers import feed, head_normed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Gating, Meta, sectioned


def build(
    m: Meta,
    g: Builder,
    *,
    gating: Gating = "softmax",
    renormalized: bool | None = True,
    by_key: bool = False,
    scaled: bool = False,
    ffn_norm: str = "ffn_norm",
    normed: bool = True,
) -> None:
    """As Llama with rotated halves; each head of queries and keys is normed before it is rotated."""
    table = g.rope_table(sectioned(m.rope, m.keys), neox=True)
    how = m.mixture(gating, renormalized=renormalized, by_key=by_key, scaled=scaled)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))  # wider than the residual stream in some files
        if normed or g.has(w.attn_q_norm):
            q, k = head_normed(g, w, q, k)
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, feed(g, w, g.rms_norm(x, getattr(w, ffn_norm)), how))
    ending(g, m, x, softmax=True)
