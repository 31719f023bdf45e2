"""Apertus."""

from __future__ import annotations

import math
from dataclasses import replace

from woolly.model.blocks.layers import head, head_normed, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Qwen3, with a network of xIELU without gate, with constants of each layer."""
    table = g.rope_table(m.rope, neox=True)
    keys = replace(m.keys, prefix="xielu")
    names = ("alpha_p", "alpha_n", "beta", "eps")
    rise, fall, beta, eps = (
        keys.reals(name, m.layers, default) for name, default in zip(names, (0.8, 0.8, 0.5, -1e-6), strict=True)
    )
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        q, k = rotated(g, w, *head_normed(g, w, q, k), table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        i = w.index
        below = beta[i] + _softplus(fall[i])
        y = g.linear(g.rms_norm(x, w.ffn_norm), w.ffn_up, w.ffn)
        y = g.xielu(y, above=_softplus(rise[i]), below=below, beta=beta[i], eps=eps[i])
        x = g.add(x, g.linear(y, w.ffn_down, g.width))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x)) if x < 30.0 else x
