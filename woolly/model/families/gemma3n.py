"""Gemma 3n."""

from __future__ import annotations

import math

import numpy as np

from woolly.model.blocks.layers import head, head_normed, qkv, rotated
from woolly.model.builder import Builder
from woolly.model.families.gemma4 import layer_inputs
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node

# Properties of the family: files do not have them, or they are not read from files.
STREAMS = 4
LAUREL = 64  # rank of the low-rank product (LAuReL) beside attention
LAYER_INPUT = 256
OWN_KEYS = 20  # first layers that have keys and values of their own
SPARSE = 10  # first layers whose gates are sparse
SPARSITY = 1.6448533535003662  # standard deviations above the mean: 5 % of normal values are larger
CAP = 30.0


def build(m: Meta, g: Builder) -> None:
    """Four streams: a layer works on the first, predicts all of them from each other, and corrects them by its result.

    Last layers use keys and values of layers before them; each layer adds an embedding of its own to three streams.
    """
    for key in ("attention.shared_kv_layers", "final_logit_softcapping"):
        m.keys.get(key)
    global_rope, local_rope = g.rope_table(m.rope, neox=True), g.local_rope_table(m.local_rope, neox=True)
    first = g.scale(g.embed(), m.sqrt_width)  # [rows, width]
    inputs = layer_inputs(m, g, first, LAYER_INPUT)
    streams = [first, *(g.rescale(_matrix(g, first, "altup_proj.weight", j), first) for j in range(STREAMS - 1))]
    for w in g.blocks(m.windows(5)):
        streams = _predicted(g, w, streams)
        x = streams[0]
        layer = _layer(g, w, x, local_rope if w.window else global_rope)
        change = g.add(layer, g.scale(x, -1.0))
        by = g.linear(_modality(g, w, layer), w.altup_correct_coef, STREAMS)
        streams = [g.add_scaled(g.add(s, change), change, g.slice(by, j, 1)) for j, s in enumerate(streams)]
        gate = g.activate(g.linear(g.mul_vector(streams[0], w.altup_correct_scale), w.inp_gate, LAYER_INPUT), "gelu")
        y = g.linear(g.mul(gate, g.slice(inputs, w.index * LAYER_INPUT, LAYER_INPUT)), w.proj, g.width)
        y = g.rms_norm(y, w.post_norm)
        streams = [streams[0], *(g.add(s, y) for s in streams[1:])]
    x = streams[0]
    for j, stream in enumerate(streams[1:]):
        x = g.add(x, g.rescale(_matrix(g, stream, "altup_unembd_proj.weight", j), streams[0]))
    x = g.rms_norm(g.take(g.scale(x, 1.0 / STREAMS)), "output_norm.weight")
    g.logits(g.soft_cap(head(g, m, x), CAP))


def _layer(g: Builder, w: Block, x: Node, table: str) -> Node:
    """Attention with a low-rank product beside it, then the network; norms before and after."""
    h = g.rms_norm(x, w.attn_norm)
    low_rank = g.linear(g.linear(h, w.laurel_l, LAUREL), w.laurel_r, g.width)
    low_rank = g.add(h, g.rms_norm(low_rank, w.laurel_post_norm))
    if w.index < OWN_KEYS:
        q, k, v = qkv(g, w, h)
        q, k = rotated(g, w, *head_normed(g, w, q, k), table)
        a = g.attend(w, q, k, g.rms_norm(v, heads=w.kv_heads), scale=1.0)
    else:
        g.pass_over(w.attn_k, w.attn_v, w.attn_k_norm)
        q = g.rms_norm(g.linear(h, w.attn_q, w.heads * w.head_dim), w.attn_q_norm, heads=w.heads)
        a = g.attend_to(OWN_KEYS - 2 if w.window else OWN_KEYS - 1, w, g.rope(q, table, heads=w.heads), scale=1.0)
    a = g.rms_norm(g.linear(a, w.attn_output, g.width), w.post_attention_norm)
    y = g.scale(g.add(g.add(a, x), low_rank), math.sqrt(0.5))
    h = g.rms_norm(y, w.ffn_norm)
    gate = g.linear(h, w.ffn_gate, w.ffn)
    if w.index < SPARSE:
        gate = g.sparsify(gate, float(np.float32(SPARSITY)))
    z = g.mul(g.activate(gate, "gelu"), g.linear(h, w.ffn_up, w.ffn))
    return g.add(y, g.rms_norm(g.linear(z, w.ffn_down, g.width), w.post_ffw_norm))


def _predicted(g: Builder, w: Block, streams: list[Node]) -> list[Node]:
    """Each stream plus a mixture of all, with weights computed from the first."""
    by = g.linear(_modality(g, w, streams[0]), w.altup_predict_coef, STREAMS * STREAMS)
    out = []
    for j, stream in enumerate(streams):
        y = stream
        for i, other in enumerate(streams):
            y = g.add_scaled(y, other, g.slice(by, j * STREAMS + i, 1))
        out.append(y)
    return out


def _modality(g: Builder, w: Block, x: Node) -> Node:
    h = g.scale(g.rms_norm(x, w.altup_router_norm), 1.0 / g.width)
    return g.activate(g.linear(h, w.altup_router, STREAMS), "tanh")


def _matrix(g: Builder, x: Node, name: str, j: int) -> Node:
    """The product with one of the matrices in a tensor."""
    return g.linear(x, name, g.width, first=j * g.width, of=(STREAMS - 1) * g.width)
