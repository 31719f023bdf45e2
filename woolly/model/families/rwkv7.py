"""RWKV 7."""

from __future__ import annotations

from collections.abc import Callable

from woolly.model.blocks.layers import head
from woolly.model.blocks.recurrence import unit
from woolly.model.builder import Activation, Builder
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node

FADING = 0.606531  # a key decays by e^-FADING at the most, at each position
LEAST_SQUARES = 1e-24  # added to the sum of squares when a key is normed
HEAD_EPS = 64e-5  # of the norm of heads
MIXES = 6  # shares of the row before, in r, w, k, v, a and g


def build(m: Meta, g: Builder) -> None:
    """Time mix and channel mix: both see the row before; a matrix for each head, part of which is replaced at each
    position. Values are mixed with those of the first layer."""
    size = m.keys.count("wkv.head_size", m.width)
    m.keys.need(m.width % size == 0, "wkv.head_size", size, f"a divisor of the width {m.width}")
    before = g.constant("before", (1.0, 0.0) * m.width)
    first: Node | None = None
    x = g.layer_norm(g.embed(), "token_embd_norm.weight")  # [rows, width]
    for w in g.blocks():
        mixed, first = _time_mix(g, w, g.layer_norm(x, w.attn_norm), first, before, m.width // size)
        x = g.add(x, mixed)
        h = g.layer_norm(x, w.attn_norm_2)
        h = _mixed(g, h, _change(g, h, before), g.flat(w.channel_mix_lerp_k, m.width))
        h = g.activate(g.linear(h, w.channel_mix_key, w.ffn), "relu2")
        x = g.add(x, g.linear(h, w.channel_mix_value, m.width))
    g.logits(head(g, m, g.layer_norm(g.take(x), "output_norm.weight"), tied=False))


def _time_mix(g: Builder, w: Block, h: Node, first: Node | None, before: str, heads: int) -> tuple[Node, Node]:
    """What the time mix adds to the residual stream, and the values of the first layer."""
    change = _change(g, h, before)
    r, f, k, v, a, gate = (
        _mixed(g, h, change, g.flat(w.time_mix_lerp_fused, MIXES, h.width, row=row)) for row in range(MIXES)
    )
    learned = _low_rank(g, w, h.width)
    r = g.linear(r, w.time_mix_receptance, h.width)
    fading = g.activate(g.add_vector(learned(f, "w", "tanh"), w.time_mix_w0), "sigmoid")
    k = g.linear(k, w.time_mix_key, h.width)
    value = g.linear(v, w.time_mix_value, h.width)
    if first is None:
        first = value
        g.pass_over(w.time_mix_v0, w.time_mix_v1, w.time_mix_v2)
    else:
        share = g.activate(g.add_vector(learned(v, "v", None), w.time_mix_v0), "sigmoid")
        value = g.add(value, g.mul(_difference(g, first, value), share))
    a = g.activate(g.add_vector(learned(a, "a", None), w.time_mix_a0), "sigmoid")
    gate = learned(gate, "g", "sigmoid")
    known = unit(g, g.mul_vector(k, w.time_mix_k_k), heads, LEAST_SQUARES)
    part = g.mul_vector(k, w.time_mix_k_a)  # k becomes k (1 + (a - 1) k_a)
    k = g.add(k, _difference(g, g.mul(part, a), part))
    # The scan reads the state after its decay: a key divided by the decay reads the state as it was before.
    decay, growth = (g.activate(g.scale(fading, by), "exp") for by in (-FADING, FADING))
    y = g.scan(
        heads, r, k, value, decay, keys=h.width // heads, seen=g.mul(known, growth), rate=g.mul(a, decay)
    )  # fmt: skip
    y = g.layer_norm(y, w.time_mix_ln, heads=heads, eps=HEAD_EPS)
    bonus = g.head_sums(g.mul_vector(g.mul(k, r), g.flat(w.time_mix_r_k, h.width)), heads=heads)
    y = g.add(y, g.scale_heads(value, bonus))
    return g.linear(g.mul(y, gate), w.time_mix_output, h.width), first


def _low_rank(g: Builder, w: Block, width: int) -> Callable[[Node, str, Activation | None], Node]:
    """A low-rank product, with an activation between its two matrices."""

    def product(x: Node, name: str, act: Activation | None) -> Node:
        first, second = getattr(w, f"time_mix_{name}1"), getattr(w, f"time_mix_{name}2")
        y = g.linear(x, first, g.rows(first))
        return g.linear(g.activate(y, act) if act else y, second, width)

    return product


def _change(g: Builder, h: Node, before: str) -> Node:
    """The row before, less this one."""
    return _difference(g, g.conv(h, before, 2), h)


def _mixed(g: Builder, h: Node, change: Node, share: str) -> Node:
    return g.add(h, g.mul_vector(change, share))


def _difference(g: Builder, x: Node, y: Node) -> Node:
    return g.add(x, g.scale(y, -1.0))
