"""Kimi Linear."""

from __future__ import annotations

import math

from woolly.limits import LIMITS
from woolly.model.blocks.latent import latent_attention, read_latent
from woolly.model.blocks.layers import feed, head, output
from woolly.model.blocks.recurrence import bare, unit
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node


def build(m: Meta, g: Builder) -> None:
    """Layers without heads of keys follow a delta rule with a decay for each key; the others have latent attention
    without positions. Experts with a shared one."""
    how, mixture = read_latent(m), m.mixture(by_key=True, scaled=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        x = g.add(x, latent_attention(g, w, h, how) if w.kv_heads else _delta(m, g, w, h))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), mixture))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight")))


def _delta(m: Meta, g: Builder, w: Block, h: Node) -> Node:
    dim, taps = m.keys.count("kda.head_dim", LIMITS.width), m.keys.count("ssm.conv_kernel", LIMITS.taps, least=2)
    width, eps = w.heads * dim, m.keys.real("attention.layer_norm_rms_epsilon", least=0.0, most=1.0)
    q, k, v = (
        g.activate(g.conv(g.linear(h, name, width), taken, taps), "silu")
        for name, taken in ((w.attn_q, w.ssm_conv1d_q), (w.attn_k, w.ssm_conv1d_k), (w.attn_v, w.ssm_conv1d_v))
    )
    q, k = unit(g, q, w.heads, eps, scale=1.0 / math.sqrt(dim)), unit(g, k, w.heads, eps)
    step = g.add_vector(_narrow(g, h, w.ssm_f_a, w.ssm_f_b, width), f"blk.{w.index}.ssm_dt.bias")
    step = g.scale_heads(g.activate(step, "softplus"), g.flat(bare(w.ssm_a), w.heads, 1))
    rate = g.activate(g.linear(h, w.ssm_beta, w.heads), "sigmoid")
    y = g.scan(w.heads, q, k, g.scale_heads(v, rate), g.activate(step, "exp"), keys=dim, seen=k, rate=rate)
    gate = g.activate(_narrow(g, h, w.ssm_g_a, w.ssm_g_b, width), "sigmoid")
    return output(g, w, g.mul(g.rms_norm(y, w.ssm_norm, heads=w.heads), gate))


def _narrow(g: Builder, h: Node, first: str, second: str, width: int) -> Node:
    """A low-rank product: two matrices, one after the other."""
    return g.linear(g.linear(h, first, g.rows(first)), second, width)
