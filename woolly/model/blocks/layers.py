"""What layers of several families have in common, written with a Builder."""

from __future__ import annotations

from collections.abc import Callable

from woolly.model.builder import Activation, Bias, Builder
from woolly.model.meta import Block, Meta, Mixture
from woolly.model.operands import Node

Gate = Callable[[Node, Node], Node]  # of gate and up: their product, with an activation

LEAST_SUM = 2.0**-14  # the least that weights of experts are divided by, whatever their sum


def qkv(g: Builder, w: Block, h: Node, *, bias: Bias = "optional") -> tuple[Node, Node, Node]:
    """Queries, keys and values: of a matrix each, or of `attn_qkv`, which has the rows of all three."""
    widths = (w.heads * w.head_dim, w.kv_heads * w.head_dim, w.kv_heads * w.value_dim)
    if not g.has(w.attn_qkv):
        names = (w.attn_q, w.attn_k, w.attn_v)
        q, k, v = (g.linear(h, name, width, bias=bias) for name, width in zip(names, widths, strict=True))
        return q, k, v
    firsts = (0, widths[0], widths[0] + widths[1])
    q, k, v = (
        g.linear(h, w.attn_qkv, width, bias=bias, first=first, of=sum(widths))
        for first, width in zip(firsts, widths, strict=True)
    )
    return q, k, v


def rotated(g: Builder, w: Block, q: Node, k: Node, table: str) -> tuple[Node, Node]:
    return g.rope(q, table, heads=w.heads), g.rope(k, table, heads=w.kv_heads)


def head_normed(g: Builder, w: Block, q: Node, k: Node) -> tuple[Node, Node]:
    """Each head of queries and keys divided by its root mean square."""
    return g.rms_norm(q, w.attn_q_norm, heads=w.heads), g.rms_norm(k, w.attn_k_norm, heads=w.kv_heads)


def clamped(g: Builder, qkv: tuple[Node, Node, Node], most: float) -> tuple[Node, Node, Node]:
    """Queries, keys and values within +-most; 0: as they are."""
    q, k, v = (g.clamp(x, -most, most) for x in qkv) if most else qkv
    return q, k, v


def output(g: Builder, w: Block, a: Node) -> Node:
    """What attention adds to the residual stream."""
    return g.linear(a, w.attn_output, g.width)


def gated(g: Builder, w: Block, h: Node, act: Activation = "silu", *, gate: Gate | None = None, ffn: int = 0) -> Node:
    """act(gate) * up; where there is no `ffn_gate`, the rows of both are in `ffn_up`, gate's first."""
    ffn = ffn or w.ffn
    separate = g.has(w.ffn_gate) or g.rows(w.ffn_up) != 2 * ffn
    first = g.linear(h, w.ffn_gate, ffn) if separate else g.linear(h, w.ffn_up, ffn, of=2 * ffn)
    second = g.linear(h, w.ffn_up, ffn) if separate else g.linear(h, w.ffn_up, ffn, first=ffn, of=2 * ffn)
    return (gate or activated(g, act))(first, second)


def activated(g: Builder, act: Activation) -> Gate:
    return lambda gate, up: g.mul(g.activate(gate, act), up)


def gated_ffn(
    g: Builder, w: Block, h: Node, act: Activation = "silu", *, gate: Gate | None = None, ffn: int = 0
) -> Node:
    return g.linear(gated(g, w, h, act, gate=gate, ffn=ffn), w.ffn_down, g.width)


def plain_ffn(g: Builder, w: Block, h: Node, act: Activation) -> Node:
    """A feed-forward network without a gate."""
    return g.linear(g.activate(g.linear(h, w.ffn_up, w.ffn), act), w.ffn_down, g.width)


def chosen(g: Builder, w: Block, h: Node, how: Mixture, scores: Node | None = None) -> tuple[Node, Node]:
    """The experts of each row, and their weights."""
    if scores is None:
        scores = g.linear(h, w.ffn_gate_inp, how.experts)
    p = scores
    if how.gating != "chosen":
        p = g.softmax(scores) if how.gating == "softmax" else g.activate(scores, "sigmoid")
    bias = next((name for name in (f"blk.{w.index}.exp_probs_b.bias", f"blk.{w.index}.exp_probs_b") if g.has(name)), "")
    choice = g.add_vector(p, bias) if bias else p  # it affects the choice, not the weights
    ids = g.top_experts(choice, count=how.used[w.index], groups=how.groups, groups_used=how.groups_used)
    weights = g.take_scores(p, ids)
    if how.gating == "chosen":
        weights = g.softmax(weights)
    if how.renormalized:
        weights = g.normalize(weights, least=LEAST_SUM)
    return ids, g.scale(weights, how.scale)


def expert_ffn(
    g: Builder, w: Block, x: Node, ids: Node, how: Mixture, gate: Gate, *, act: Activation = "silu", width: int = 0
) -> Node:
    """The outputs of the chosen experts, one after the other; act: the activation of experts without a gate."""
    width = width or g.width

    def product(x: Node, name: str, width: int, *, first: int = 0, of: int = 0) -> Node:
        y = g.expert_linear(x, name, ids, how.experts, width, first=first, of=of)
        stem = name.removesuffix(".weight")
        if g.has(f"{stem}.scale"):
            y = g.expert_scale(y, f"{stem}.scale", ids, how.experts)
        return g.expert_bias(y, f"{stem}.bias", ids, how.experts) if g.has(f"{stem}.bias") else y

    if g.has(w.ffn_gate_up_exps):
        ffn = g.rows(w.ffn_gate_up_exps) // 2
        first, second = (product(x, w.ffn_gate_up_exps, ffn, first=at, of=2 * ffn) for at in (0, ffn))
    else:
        ffn = g.rows(w.ffn_up_exps)
        if not g.has(w.ffn_gate_exps):
            return product(g.activate(product(x, w.ffn_up_exps, ffn), act), w.ffn_down_exps, width)
        first, second = product(x, w.ffn_gate_exps, ffn), product(x, w.ffn_up_exps, ffn)
    return product(gate(first, second), w.ffn_down_exps, width)


def experts(
    g: Builder,
    w: Block,
    h: Node,
    how: Mixture,
    act: Activation = "silu",
    *,
    gate: Gate | None = None,
    scores: Node | None = None,
) -> Node:
    """The outputs of each row's chosen experts, weighted and added in the order of their rank."""
    ids, weights = chosen(g, w, h, how, scores)
    y = expert_ffn(g, w, h, ids, how, gate or activated(g, act), act=act, width=h.width)
    return g.expert_sum(y, weights, count=ids.width)


def shared_expert(g: Builder, w: Block, h: Node, act: Activation = "silu", *, gate: Gate | None = None) -> Node:
    """The expert that every row has, with a gated or a plain network, times one sigmoid a row where the file has it."""
    ffn = g.rows(w.ffn_up_shexp)
    y = g.linear(h, w.ffn_up_shexp, ffn)
    if g.has(w.ffn_gate_shexp):
        y = (gate or activated(g, act))(g.linear(h, w.ffn_gate_shexp, ffn), y)
    else:
        y = g.activate(y, act)
    y = g.linear(y, w.ffn_down_shexp, g.width)
    if not g.has(w.ffn_gate_inp_shexp):
        return y
    return g.scale_heads(y, g.activate(g.linear(h, w.ffn_gate_inp_shexp, 1), "sigmoid"))


def feed(g: Builder, w: Block, h: Node, how: Mixture | None, act: Activation = "silu") -> Node:
    """Routed experts, plus the shared one where there is one; in a layer without experts one gated network."""
    if how is None or not g.has(w.ffn_gate_inp):
        return gated_ffn(g, w, h, act)
    y = experts(g, w, h, how, act)
    return g.add(y, shared_expert(g, w, h, act)) if g.has(w.ffn_up_shexp) else y


def head(g: Builder, m: Meta, x: Node, *, tied: bool = True) -> Node:
    """The logits of normed rows; `tied`: by the embedding's weights where the file has no others. The rows themselves
    are an output too, the embedding of the text up to there, for requests that ask a generating model for one."""
    g.output("embedding", x)
    return g.linear(x, "output.weight", m.vocab, tied="token_embd.weight" if tied else "")


def alibi(g: Builder, heads: int, most: float) -> str:
    """The slopes that lower scores by distance: powers of two for a power of two of heads; for other numbers those of
    the power below, then every other one of the power above."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-most * (h + 1) / power) for h in range(power)]
    slopes += [2.0 ** (-most / 2 * (2 * h + 1) / power) for h in range(heads - power)]
    return g.constant(f"alibi.{heads}", slopes)
