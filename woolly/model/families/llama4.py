"""Llama 4."""

from __future__ import annotations

import numpy as np

from woolly.model.blocks.layers import activated, expert_ffn, gated_ffn, head, output, qkv, rotated, shared_expert
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta, Mixture
from woolly.model.operands import Node
from woolly.model.tables import TemperatureTable

NO_ROPE_EVERY = 4
CHUNK = 8192
TEMPERATURE = 0.1
PLAIN_EXPERTS = 128  # of the larger model, whose heads are not normed


def build(m: Meta, g: Builder) -> None:
    """Three of four layers have RoPE, then norms of heads, and attend within chunks; the fourth sees everything, with
    queries that grow with their position. Scores of experts weight their inputs, not their outputs."""
    table = g.rope_table(m.rope, neox=False)
    how = m.mixture("sigmoid", renormalized=False)
    temperature_table = g.table("temperature", TemperatureTable(float(np.float32(TEMPERATURE)), CHUNK, first=1))
    chunk = 0 if m.keys.get("attention.sliding_window") == 0 else CHUNK
    windows = tuple(chunk if (i + 1) % NO_ROPE_EVERY else 0 for i in range(m.layers))
    x = g.embed()  # [rows, width]
    for w in g.blocks(windows):
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        if (w.index + 1) % NO_ROPE_EVERY:
            q, k = rotated(g, w, q, k, table)
            if how is None or how.experts != PLAIN_EXPERTS:
                q, k = g.rms_norm(q, heads=w.heads), g.rms_norm(k, heads=w.kv_heads)
        else:
            q = g.scale_by_position(q, temperature_table)
        x = g.add(x, output(g, w, g.attend(w, q, k, v, chunked=True)))
        h = g.rms_norm(x, w.ffn_norm)
        x = g.add(x, _experts(g, w, h, how) if how and g.has(w.ffn_gate_inp) else gated_ffn(g, w, h))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def _experts(g: Builder, w: Block, h: Node, how: Mixture) -> Node:
    """Experts are chosen by their scores, whose sigmoid multiplies the inputs."""
    scores = g.linear(h, w.ffn_gate_inp, how.experts)
    ids = g.top_experts(scores, count=how.used[w.index], groups=1, groups_used=1)
    weights = g.activate(g.take_scores(scores, ids), "sigmoid")
    y = expert_ffn(g, w, g.expert_inputs(h, weights), ids, how, activated(g, "silu"))
    return g.add(g.expert_sum(y, None, count=ids.width), shared_expert(g, w, h))
