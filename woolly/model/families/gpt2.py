"""GPT-2, StarCoder 1, BLOOM and MPT: models with learned positions or ALiBi."""

from __future__ import annotations

from woolly.model.blocks.layers import alibi, clamped, head, output, plain_ffn, qkv
from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """Layer norms, GELU without gate, a learned row for each position: GPT-2 and StarCoder 1."""
    x = g.add(g.embed(), g.embed_positions("position_embd.weight"))  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.layer_norm(x, w.attn_norm))
        x = g.add(x, output(g, w, g.attend(w, q, k, v)))
        x = g.add(x, plain_ffn(g, w, g.layer_norm(x, w.ffn_norm), "gelu"))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_bloom(m: Meta, g: Builder) -> None:
    """BLOOM: ALiBi, and the embedding is normed."""
    x = g.layer_norm(g.embed(), "token_embd_norm.weight")  # [rows, width]
    for w in g.blocks():
        q, k, v = qkv(g, w, g.layer_norm(x, w.attn_norm))
        x = g.add(x, output(g, w, g.attend(w, q, k, v, slopes=alibi(g, w.heads, 8.0))))
        x = g.add(x, plain_ffn(g, w, g.layer_norm(x, w.ffn_norm), "gelu"))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_mpt(m: Meta, g: Builder) -> None:
    """MPT: ALiBi, clamps, norms of whole queries and keys, learned positions and divisors of the activations, each
    where the file has it."""
    most = m.keys.real("attention.clamp_kqv", least=0.0, default=0.0)
    bias = m.keys.real("attention.max_alibi_bias", least=0.0, most=1e4, default=0.0)
    x = g.embed()  # [rows, width]
    if g.has("position_embd.weight"):
        x = g.add(x, g.embed_positions("position_embd.weight"))
    for w in g.blocks():
        q, k, v = clamped(g, qkv(g, w, g.layer_norm(x, w.attn_norm)), most)
        if g.has(w.attn_q_norm):
            q, k = g.layer_norm(q, w.attn_q_norm), g.layer_norm(k, w.attn_k_norm)
        slopes = alibi(g, w.heads, bias) if bias else ""
        x = g.add(x, output(g, w, g.attend(w, q, k, v, slopes=slopes)))
        y = g.activate(g.linear(g.layer_norm(x, w.ffn_norm), w.ffn_up, w.ffn), "gelu")
        scales = f"blk.{w.index}.ffn.act.scales"
        if g.has(scales):
            y = g.div_vector(y, scales)
        x = g.add(x, g.linear(y, w.ffn_down, g.width))
    x = g.layer_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))
