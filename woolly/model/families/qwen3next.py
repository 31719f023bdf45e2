"""Qwen3-Next and Qwen 3.5, dense and of experts."""

from __future__ import annotations

import math

import numpy as np

from woolly.model.blocks.layers import feed, head, head_normed, output, rotated
from woolly.model.blocks.recurrence import StateSpace, bare, read_state_space, unit
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta, sectioned
from woolly.model.operands import Node
from woolly.model.tensors import pieces


def build(m: Meta, g: Builder, *, tiled: bool = False) -> None:
    """All but every fourth layer follow the gated delta rule, the others attend with a gate. `tiled`: a head of keys
    serves every nth head of values, not neighbours."""
    size = read_state_space(m)
    m.keys.need(size.head == size.state, "ssm.inner_size", size.inner, f"{size.heads} heads of {size.state}")
    table, how = g.rope_table(sectioned(m.rope, m.keys), neox=True), m.mixture()
    x = g.embed()  # [rows, width]
    for w, attends in zip(g.blocks(), _full_layers(m), strict=True):
        h = g.rms_norm(x, w.attn_norm)
        x = g.add(x, _gated_attention(g, w, h, table) if attends else _delta(m, g, w, h, size, tiled=tiled))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.post_attention_norm), how))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight")))


def _full_layers(m: Meta) -> list[bool]:
    """Which layers attend."""
    pattern = m.keys.get("attention.recurrent_layers")
    if pattern is None:
        interval = m.keys.count("full_attention_interval", m.layers, 4)
        return [(index + 1) % interval == 0 for index in range(m.layers)]
    fits = isinstance(pattern, list | np.ndarray) and len(pattern) in (m.layers, m.layers + m.drafts)
    fits = fits and all(isinstance(v, bool | np.bool_) for v in pattern)
    m.keys.need(fits, "attention.recurrent_layers", pattern, f"true or false for each of {m.layers} layers")
    return [not recurrent for recurrent in pattern[: m.layers]]


def _gated_attention(g: Builder, w: Block, h: Node, table: str) -> Node:
    """Each head of queries is followed by the gate of its result."""
    width, of = w.heads * w.head_dim, 2 * w.head_dim
    q = g.linear(h, w.attn_q, width, of=of, heads=w.heads)
    gate = g.linear(h, w.attn_q, width, first=w.head_dim, of=of, heads=w.heads)
    k, v = (g.linear(h, name, w.kv_heads * w.head_dim) for name in (w.attn_k, w.attn_v))
    q, k = rotated(g, w, *head_normed(g, w, q, k), table)
    return output(g, w, g.mul(g.attend(w, q, k, v), g.activate(gate, "sigmoid")))


def _delta(m: Meta, g: Builder, w: Block, h: Node, size: StateSpace, *, tiled: bool) -> Node:
    """The gated delta rule: a matrix for each head of values decays, and at each position the value it has for the key
    moves towards the new value, by the rate."""
    n, eps = size.groups * size.state, m.keys.real("attention.layer_norm_rms_epsilon", least=0.0, most=1.0)
    mixed, z, beta, alpha = _inputs(g, w, h, size)
    decay = g.activate(g.add_vector(alpha, f"blk.{w.index}.ssm_dt.bias"), "softplus")
    decay = g.activate(g.mul_vector(decay, g.flat(bare(w.ssm_a), size.heads)), "exp")
    mixed = g.activate(g.conv(mixed, w.ssm_conv1d, size.taps), "silu")
    q, k, v = (g.slice(mixed, first, count) for first, count in ((0, n), (n, n), (2 * n, size.inner)))
    q, k = unit(g, q, size.groups, eps, scale=1.0 / math.sqrt(size.state)), unit(g, k, size.groups, eps)
    rate = g.activate(beta, "sigmoid")
    y = g.scan(
        size.heads, q, k, g.scale_heads(v, rate), decay, keys=size.state, seen=k, rate=rate, tiled=tiled
    )  # fmt: skip
    y = g.mul(g.activate(z, "silu"), g.rms_norm(y, w.ssm_norm, heads=size.heads))
    return g.linear(y, w.ssm_out, g.width)


def _inputs(g: Builder, w: Block, h: Node, size: StateSpace) -> tuple[Node, Node, Node, Node]:
    """Queries, keys and values in one, the gate, the rates and the steps. Older files order them by heads of keys."""
    n, share = size.groups * size.state, size.heads // size.groups
    if g.has(w.attn_qkv):
        mixed, z = g.linear(h, w.attn_qkv, 2 * n + size.inner), g.linear(h, w.attn_gate, size.inner)
    else:
        name, each, of = w.ssm_in, share * size.state, 2 * size.state + 2 * share * size.state
        cuts = ((0, size.state), (size.state, size.state), (2 * size.state, each))
        parts = tuple(part for first, count in cuts for part in pieces(name, first, count, of, size.groups))
        mixed = g.product(h, name, parts, of * size.groups)
        z = g.linear(h, name, size.inner, first=of - each, of=of, heads=size.groups)
    if g.has(w.ssm_ba):
        beta, alpha = (
            g.linear(h, w.ssm_ba, size.heads, first=first, of=2 * share, heads=size.groups) for first in (0, share)
        )
    else:
        beta, alpha = g.linear(h, w.ssm_beta, size.heads), g.linear(h, w.ssm_alpha, size.heads)
    return mixed, z, beta, alpha
