"""Mamba 1 and 2, FalconMamba, Jamba, Falcon-H1, Nemotron-H."""

from __future__ import annotations

from woolly.model.blocks.layers import (
    experts,
    feed,
    gated_ffn,
    head,
    output,
    plain_ffn,
    qkv,
    rotated,
    shared_expert,
)
from woolly.model.blocks.recurrence import either, mamba1, mamba2, read_state_space
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta, Mixture
from woolly.model.operands import Node


def build(m: Meta, g: Builder) -> None:
    """Each layer is a norm and Mamba 1."""
    size, normed = read_state_space(m, by_head=False), m.keys.flag("ssm.dt_b_c_rms", False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        x = g.add(x, mamba1(g, w, g.rms_norm(x, w.attn_norm), size, normed=normed))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight")))


def build_mamba2(m: Meta, g: Builder) -> None:
    """Each layer is a norm and Mamba 2."""
    size = read_state_space(m)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        x = g.add(x, mamba2(g, w, g.rms_norm(x, w.attn_norm), size))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight")))


def build_jamba(m: Meta, g: Builder) -> None:
    """Layers without heads of keys are Mamba 1, the others attend without positions; gated networks or experts."""
    size, how = read_state_space(m, by_head=False), m.mixture(renormalized=False)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        x = g.add(x, output(g, w, g.attend(w, *qkv(g, w, h))) if w.kv_heads else mamba1(g, w, h, size))
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), how))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight")))


def build_falcon_h1(m: Meta, g: Builder) -> None:
    """Attention and Mamba 2 read one norm and are added together."""
    size, table = read_state_space(m), g.rope_table(m.rope, neox=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        q, k, v = qkv(g, w, h)
        q, k = rotated(g, w, q, k, table)
        x = g.add(x, g.add(output(g, w, g.attend(w, q, k, v)), mamba2(g, w, h, size)))
        x = g.add(x, gated_ffn(g, w, g.rms_norm(x, either(g, w.ffn_norm))))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight")))


def build_nemotron_h(m: Meta, g: Builder) -> None:
    """Each layer is a network, attention without positions, or Mamba 2."""
    key = "attention.layer_norm_rms_epsilon"
    eps = m.keys.real(key if m.keys.get(key) is not None else "attention.layer_norm_epsilon", least=0.0, most=1.0)
    size, how = read_state_space(m, eps=eps), m.mixture("sigmoid", renormalized=None, scaled=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm, eps=eps)
        if w.ffn:
            x = g.add(x, _network(g, w, h, how))
        elif w.kv_heads:
            x = g.add(x, output(g, w, g.attend(w, *qkv(g, w, h))))
        else:
            x = g.add(x, mamba2(g, w, h, size))
    g.logits(head(g, m, g.rms_norm(g.take(x), "output_norm.weight", eps=eps)))


def _network(g: Builder, w: Block, h: Node, how: Mixture | None) -> Node:
    """A network, or experts, without gates; routed experts work in a latent space where the file has one."""
    if how is None or not g.has(w.ffn_gate_inp):
        return plain_ffn(g, w, h, "relu2")
    x = g.linear(h, w.ffn_latent_down, g.rows(w.ffn_latent_down)) if g.has(w.ffn_latent_down) else h
    y = experts(g, w, x, how, "relu2", scores=g.linear(h, w.ffn_gate_inp, how.experts))
    if g.has(w.ffn_latent_up):
        y = g.linear(y, w.ffn_latent_up, g.width)
    return g.add(y, shared_expert(g, w, h, "relu2")) if g.has(w.ffn_up_shexp) else y
