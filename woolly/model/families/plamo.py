"""PLaMo 1, 2 and 3."""

from __future__ import annotations

from woolly.model.blocks.layers import gated_ffn, head, head_normed, output, qkv, rotated
from woolly.model.blocks.recurrence import StateSpace, either, read_state_space, states
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta
from woolly.model.operands import Node


def build(m: Meta, g: Builder) -> None:
    """Attention and the gated network read one norm and are added together. PLaMo 1."""
    table = g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        q, k = rotated(g, w, q, k, table)
        x = g.add(g.add(x, output(g, w, g.attend(w, q, k, v))), gated_ffn(g, w, h))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_plamo2(m: Meta, g: Builder) -> None:
    """As PLaMo 3 without windows; layers without heads of keys are state-space layers."""
    size, table = read_state_space(m), g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        x = _with_network(g, w, x, _attention(g, w, h, table) if w.kv_heads else _states(g, w, h, size))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_plamo3(m: Meta, g: Builder) -> None:
    """Norms before and after both branches, and of heads; layers with a window have another RoPE base."""
    global_rope, local_rope = g.rope_table(m.rope, neox=True), g.local_rope_table(m.local_rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks(m.windows(8)):
        x = _with_network(
            g, w, x, _attention(g, w, g.rms_norm(x, w.attn_norm), local_rope if w.window else global_rope)
        )
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def _attention(g: Builder, w: Block, h: Node, table: str) -> Node:
    q, k, v = qkv(g, w, h)
    q, k = rotated(g, w, *head_normed(g, w, q, k), table)
    return output(g, w, g.attend(w, q, k, v))


def _with_network(g: Builder, w: Block, x: Node, branch: Node) -> Node:
    """The stream with the branch and the gated network, both normed before they are added."""
    x = g.add(x, g.rms_norm(branch, either(g, w.post_attention_norm)))
    y = gated_ffn(g, w, g.rms_norm(x, w.ffn_norm))
    return g.add(x, g.rms_norm(y, either(g, w.post_ffw_norm)))


def _states(g: Builder, w: Block, h: Node, size: StateSpace) -> Node:
    """Gate and input alternate by heads in one tensor; b, c and dt are normed, and all heads share b and c."""
    each, n = size.head, size.state
    z, x = (g.linear(h, w.ssm_in, size.inner, first=first, of=2 * each, heads=size.heads) for first in (0, each))
    x = g.activate(g.conv(x, w.ssm_conv1d, size.taps), "silu")
    rank = g.rows(w.ssm_x) - 2 * n
    cuts = ((w.ssm_b_norm, 0, n), (w.ssm_c_norm, n, n), (w.ssm_dt_norm, 2 * n, rank))
    b, c, dt = (
        g.rms_norm(g.linear(x, w.ssm_x, count, first=first, of=2 * n + rank), either(g, name))
        for name, first, count in cuts
    )
    dt = g.activate(g.linear(dt, w.ssm_dt, size.heads, bias="required"), "softplus")
    return g.linear(g.mul(g.activate(z, "silu"), states(g, w, x, dt, b, c, size)), w.ssm_out, g.width)
