"""StarCoder 2, CodeShell, Nemotron 3 and 4, Jais 2: layer norms and a network without gate."""

from __future__ import annotations

from woolly.model.blocks.layers import head, output, plain_ffn, qkv, rotated
from woolly.model.builder import Activation, Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder, *, act: Activation = "gelu", tied: bool = True) -> None:
    """Layer norms, rotated halves, a network without gate, biases."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.layer_norm(x, w.attn_norm))
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, plain_ffn(g, w, g.layer_norm(x, w.ffn_norm), act))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x, tied=tied))
