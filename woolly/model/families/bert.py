"""BERT and its kin: Nomic (and its experts), Jina 2 and 3, ModernBERT."""

from __future__ import annotations

from woolly.model.blocks.endings import embedding
from woolly.model.blocks.layers import alibi, chosen, gated_ffn, output, plain_ffn, qkv, rotated
from woolly.model.builder import Activation, Builder
from woolly.model.meta import Block, Meta, Mixture
from woolly.model.operands import Node


def build(m: Meta, g: Builder, *, use_rope: bool = True, act: Activation = "gelu") -> None:
    """Norms after each branch, every row sees all. Positions are learned rows, or RoPE. Nomic has a gate and SiLU, and
    in some layers experts; the others GELU."""
    table = g.rope_table(m.rope, neox=True) if use_rope else ""
    how = m.mixture(renormalized=False)
    x = _embedded(g)  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, x)
        if use_rope:
            q, k = rotated(g, w, q, k, table)
        x = g.layer_norm(g.add(x, output(g, w, g.attend(w, q, k, v))), w.attn_output_norm)
        x = g.layer_norm(g.add(x, _feed(g, w, x, how, act)), w.layer_output_norm)
    embedding(g, m, x, _as_it_is)


def build_jina2(m: Meta, g: Builder) -> None:
    """ALiBi in both directions; gated GELU. Some files norm whole queries and keys, and the residual stream once
    more."""
    x = _embedded(g)  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, x)
        if g.has(w.attn_q_norm):
            q, k = g.layer_norm(q, w.attn_q_norm), g.layer_norm(k, w.attn_k_norm)
        a = output(g, w, g.attend(w, q, k, v, slopes=alibi(g, w.heads, 8.0)))
        y = g.layer_norm(g.add(x, a), w.attn_output_norm)
        if g.has(w.attn_norm_2):
            y = g.layer_norm(g.add(y, x), w.attn_norm_2)
        x = g.layer_norm(g.add(y, gated_ffn(g, w, y, "gelu")), w.layer_output_norm)
    embedding(g, m, x, _as_it_is)


def build_modern(m: Meta, g: Builder) -> None:
    """Norms before each branch, but none before the first; gated GELU. The first of three layers sees all, the others a
    window, with another RoPE base."""
    global_rope, local_rope = g.rope_table(m.rope, neox=True), g.local_rope_table(m.local_rope, neox=True)
    x = g.layer_norm(g.embed(), "token_embd_norm.weight")  # [rows, width]
    for w in g.blocks(m.windows(3, global_first=True)):
        h = g.layer_norm(x, w.attn_norm) if w.index or g.has(w.attn_norm) else x
        q, k, v = qkv(g, w, h)
        q, k = rotated(g, w, q, k, local_rope if w.window else global_rope)
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, gated_ffn(g, w, g.layer_norm(x, w.ffn_norm), "gelu"))
    embedding(g, m, x, lambda y: g.layer_norm(y, "output_norm.weight"), act="gelu", rank_by_mean=True)


def _embedded(g: Builder) -> Node:
    """The embedding of tokens, plus the first token type and learned positions where the file has them; normed."""
    x = g.embed()
    if g.has("token_types.weight"):
        x = g.add_row(x, "token_types.weight", 0)
    if g.has("position_embd.weight"):
        x = g.add(x, g.embed_positions("position_embd.weight"))
    return g.layer_norm(x, "token_embd_norm.weight")


def _feed(g: Builder, w: Block, x: Node, how: Mixture | None, act: Activation) -> Node:
    if how is not None and g.has(w.ffn_gate_inp):
        ids, weights = chosen(g, w, x, how)
        up = g.expert_linear(x, w.ffn_up_exps, ids, how.experts, g.rows(w.ffn_up_exps))
        down = g.expert_linear(g.activate(up, act), w.ffn_down_exps, ids, how.experts, g.width)
        return g.expert_sum(down, weights, count=ids.width)
    return gated_ffn(g, w, x, act) if g.has(w.ffn_gate) else plain_ffn(g, w, x, act)


def _as_it_is(x: Node) -> Node:
    return x
