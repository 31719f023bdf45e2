"""Gemma 4."""

from __future__ import annotations

import math
from dataclasses import replace

from woolly.limits import LIMITS
from woolly.model.blocks.layers import experts, gated_ffn, head
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta, Mixture
from woolly.model.operands import Node


def build(m: Meta, g: Builder) -> None:
    """As Gemma 3 with values that are normed too; layers with a window have heads of another size, the last layers use
    keys and values of layers before them; an embedding for each layer, and experts beside the network, in some."""
    keys = m.keys
    small = keys.count("attention.key_length_swa", LIMITS.width, m.head_dim)
    local_rot = keys.count("rope.dimension_count_swa", small, min(m.rope.rot, small))
    keys.need(local_rot % 2 == 0, "rope.dimension_count_swa", local_rot, "an even number")
    global_rope = g.rope_table(m.rope, neox=True)
    local_rope = g.local_rope_table(replace(m.local_rope, rot=local_rot), neox=True)
    how, windows = m.mixture(), m.windows(1)
    with_keys = m.layers - keys.count("attention.shared_kv_layers", m.layers - 1, 0, least=0)
    each = keys.count("embedding_length_per_layer_input", LIMITS.width, 0, least=0)
    x = g.scale(g.embed(), m.sqrt_width)  # [rows, width]
    inputs = layer_inputs(m, g, x, each) if each else None
    for index, window in enumerate(windows):
        w = g.block(index, window=window, head_dim=small if window else 0, value_dim=small if window else 0)
        table = local_rope if window else global_rope
        h = g.rms_norm(x, w.attn_norm)
        q = g.rms_norm(g.linear(h, w.attn_q, w.heads * w.head_dim), w.attn_q_norm, heads=w.heads)
        q = g.rope(q, table, heads=w.heads)
        if index < with_keys:
            k, v = _keys_and_values(g, w, h, table)
            a = g.attend(w, q, k, v, scale=1.0)
        else:
            g.pass_over(w.attn_k, w.attn_v, w.attn_k_norm)
            a = g.attend_to(with_keys - 2 if window else with_keys - 1, w, q, scale=1.0)
        x = g.add(x, g.rms_norm(g.linear(a, w.attn_output, g.width), w.post_attention_norm))
        y = gated_ffn(g, w, g.rms_norm(x, w.ffn_norm), "gelu")
        if how and g.has(w.ffn_gate_inp):
            y = g.add(g.rms_norm(y, w.post_ffw_norm_1), _experts(m, g, w, x, how))
        x = g.add(x, g.rms_norm(y, w.post_ffw_norm))
        if inputs:
            y = g.mul(g.activate(g.linear(x, w.inp_gate, each), "gelu"), g.slice(inputs, index * each, each))
            x = g.add(x, g.rms_norm(g.linear(y, w.proj, g.width), w.post_norm))
        x = g.scale(x, g.number(w.layer_output_scale)) if g.has(w.layer_output_scale) else x
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(g.soft_cap(head(g, m, x), keys.real("final_logit_softcapping", 0.0, default=30.0)))


def layer_inputs(m: Meta, g: Builder, x: Node, each: int) -> Node:
    """The inputs of each layer from the tokens themselves, one after the other: an embedding of the layer's own plus a
    normed product of the model's embedding."""
    width = m.layers * each
    embedded = g.scale(g.embed("per_layer_token_embd.weight", width), math.sqrt(each))
    y = g.scale(g.linear(x, "per_layer_model_proj.weight", width), 1.0 / math.sqrt(m.width))
    y = g.rms_norm(y, "per_layer_proj_norm.weight", heads=m.layers)
    return g.scale(g.add(y, embedded), math.sqrt(0.5))


def _keys_and_values(g: Builder, w: Block, h: Node, table: str) -> tuple[Node, Node]:
    """Values are keys before their norm, where the file has no matrix for them."""
    k = g.linear(h, w.attn_k, w.kv_heads * w.head_dim)
    v = g.linear(h, w.attn_v, w.kv_heads * w.value_dim) if g.has(w.attn_v) else k
    k = g.rope(g.rms_norm(k, w.attn_k_norm, heads=w.kv_heads), table, heads=w.kv_heads)
    return k, g.rms_norm(v, heads=w.kv_heads)


def _experts(m: Meta, g: Builder, w: Block, x: Node, how: Mixture) -> Node:
    """Experts that are chosen by the residual stream, normed without weights."""
    h = g.scale(g.rms_norm(x), 1.0 / math.sqrt(m.width))
    scores = g.linear(g.mul_vector(h, f"blk.{w.index}.ffn_gate_inp.scale"), w.ffn_gate_inp, how.experts)
    y = experts(g, w, g.rms_norm(x, w.pre_ffw_norm_2), how, "gelu", scores=scores)
    return g.rms_norm(y, w.post_ffw_norm_2)
