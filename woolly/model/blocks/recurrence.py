"""Layers that carry a state from position to position, written with a Builder: Mamba 1 and 2, delta rules, short
convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from woolly.limits import LIMITS
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node


@dataclass(frozen=True, slots=True)
class StateSpace:
    """Sizes of a state-space layer: `inner` columns in `heads`, of which each group shares its keys."""

    inner: int
    state: int
    heads: int  # of Mamba 1: the rank of its time steps
    groups: int
    taps: int
    eps: float | None = None  # of the layer's own norms, where it is not the model's

    @property
    def head(self) -> int:
        return self.inner // self.heads


def read_state_space(m: Meta, *, by_head: bool = True, eps: float | None = None) -> StateSpace:
    """The sizes in a file; `by_head`: the columns are divided into heads, as in Mamba 2."""
    keys = m.keys
    inner, heads = keys.count("ssm.inner_size", LIMITS.width * 8), keys.count("ssm.time_step_rank", LIMITS.width)
    groups = (keys.count("ssm.group_count", LIMITS.width, 1, least=0) or 1) if by_head else 1
    keys.need(not by_head or inner % heads == 0, "ssm.inner_size", inner, f"a multiple of the {heads} heads")
    keys.need(not by_head or heads % groups == 0, "ssm.group_count", groups, f"a divisor of the {heads} heads")
    taps = keys.count("ssm.conv_kernel", LIMITS.taps, least=2)
    return StateSpace(inner, keys.count("ssm.state_size", LIMITS.width), heads, groups, taps, eps)


def bare(name: str) -> str:
    """The name of a tensor that has no `.weight` behind it."""
    return name.removesuffix(".weight")


def either(g: Builder, name: str) -> str:
    """The name of a tensor as the file has it, with `.weight` or without."""
    return name if g.has(name) else bare(name)


def mamba1(g: Builder, w: Block, h: Node, size: StateSpace, *, normed: bool = False) -> Node:
    """Mamba 1: a vector of states for each column. `normed`: steps, inputs and outputs of the states (dt, b, c) are
    normed, with weights where the file has them."""
    inner, rank, n = size.inner, size.heads, size.state
    x = g.linear(h, w.ssm_in, inner, of=2 * inner)
    z = g.linear(h, w.ssm_in, inner, first=inner, of=2 * inner)
    x = g.activate(g.conv(x, w.ssm_conv1d, size.taps), "silu")
    cuts = ((w.ssm_dt_norm, 0, rank), (w.ssm_b_norm, rank, n), (w.ssm_c_norm, rank + n, n))
    dt, b, c = (g.linear(x, w.ssm_x, count, first=first, of=rank + 2 * n) for _, first, count in cuts)
    if normed or g.has(w.ssm_dt_norm):
        dt, b, c = (g.rms_norm(x, name if g.has(name) else "") for x, (name, *_) in zip((dt, b, c), cuts, strict=True))
    dt = g.activate(g.linear(dt, w.ssm_dt, inner, bias="required"), "softplus")
    y = g.selective_scan(x, dt, b, c, bare(w.ssm_a))
    y = g.add(y, g.mul_vector(x, bare(w.ssm_d)))
    return g.linear(g.mul(g.activate(z, "silu"), y), w.ssm_out, g.width)


def mamba2(g: Builder, w: Block, h: Node, size: StateSpace) -> Node:
    """Mamba 2: a matrix of states for each head, with one decay a position; the result is gated, then normed."""
    inner, n = size.inner, size.groups * size.state
    of = 2 * inner + 2 * n + size.heads
    z = g.linear(h, w.ssm_in, inner, of=of)
    mixed = g.linear(h, w.ssm_in, inner + 2 * n, first=inner, of=of)
    dt = g.linear(h, w.ssm_in, size.heads, first=of - size.heads, of=of)
    dt = g.activate(g.add_vector(dt, f"blk.{w.index}.ssm_dt.bias"), "softplus")
    mixed = g.activate(g.conv(mixed, w.ssm_conv1d, size.taps), "silu")
    x, b, c = (g.slice(mixed, first, count) for first, count in ((0, inner), (inner, n), (inner + n, n)))
    y = g.mul(g.activate(z, "silu"), states(g, w, x, dt, b, c, size))
    if g.has(w.ssm_norm):
        y = g.rms_norm(y, w.ssm_norm, heads=size.groups, eps=size.eps)
    return g.linear(y, w.ssm_out, g.width)


def states(g: Builder, w: Block, x: Node, dt: Node, b: Node, c: Node, size: StateSpace) -> Node:
    """The scan of each head with the decay e^(dt a), plus d times its input."""
    rates, share = (g.flat(bare(name), size.heads, 1) for name in (w.ssm_a, w.ssm_d))
    decay = g.activate(g.mul_vector(dt, rates), "exp")
    y = g.scan(size.heads, c, b, g.scale_heads(x, dt), decay, keys=size.state)
    return g.add(y, g.scale_heads(x, share))


def unit(g: Builder, x: Node, heads: int, eps: float, *, scale: float = 1.0) -> Node:
    """Each head with the length 1, times `scale`: x / sqrt(sum of squares + eps)."""
    n = x.width // heads
    return g.scale(g.rms_norm(x, heads=heads, eps=eps / n), scale / math.sqrt(n))


def short_conv(g: Builder, w: Block, h: Node, taps: int) -> Node:
    """The input times a gate, a convolution of that, and its product with another gate."""
    name = f"blk.{w.index}.shortconv"
    gate, out, x = (
        g.linear(h, f"{name}.in_proj.weight", g.width, first=at * g.width, of=3 * g.width) for at in range(3)
    )
    y = g.mul(out, g.conv(g.mul(gate, x), f"{name}.conv.weight", taps))
    return g.linear(y, f"{name}.out_proj.weight", g.width)
