"""SmallThinker."""

from __future__ import annotations

from woolly.model.blocks.layers import experts, gated_ffn, head, output, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.meta import Meta

WINDOW = 4096  # in files that have a window, whatever its size there
GLOBAL_EVERY = 4


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves and experts of ReLU, which are chosen by the layer's input. With windows, the first
    of four layers is global and has no RoPE."""
    table = g.rope_table(m.rope, neox=True)
    how = m.mixture(by_key=True)
    windows = tuple(WINDOW if size else 0 for size in m.windows(GLOBAL_EVERY, global_first=True))
    x = g.embed()  # [rows, width]
    for w in g.blocks(windows):
        scores = g.linear(x, w.ffn_gate_inp, how.experts) if how else None
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        if w.window or not any(windows):
            q, k = rotated(g, w, q, k, table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        h = g.rms_norm(x, w.ffn_norm)
        x = g.add(x, experts(g, w, h, how, "relu", scores=scores) if how else gated_ffn(g, w, h, "relu"))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
