"""Ministral 3 and Mistral Small 3."""

from __future__ import annotations

from woolly.model.builder import Builder
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama; rotated queries grow slowly with their position where the file gives a temperature."""
    table = g.rope_table(m.rope)
    heat = g.table("temperature", m.temperature) if m.temperature else ""
    x = g.embed("token_embd.weight", m.vocab, m.width)  # [rows, width]
    for i in range(m.layers):
        w = g.block(i)

        h = g.rms_norm(x, w.attn_norm, eps=m.eps)
        q = g.linear(h, w.attn_q, m.heads * m.head_dim, bias="optional")  # [rows, heads * head_dim]
        k = g.linear(h, w.attn_k, m.kv_heads * m.head_dim, bias="optional")
        v = g.linear(h, w.attn_v, m.kv_heads * m.head_dim, bias="optional")
        q = g.rope(q, table, heads=m.heads, halves=False)
        k = g.rope(k, table, heads=m.kv_heads, halves=False)
        q = g.temper(q, heat) if heat else q
        a = g.attend(q, k, v, layer=i, heads=m.heads, kv_heads=m.kv_heads, scale=m.attention_scale)
        x = g.add(x, g.linear(a, w.attn_output, m.width, bias="optional"))

        h = g.rms_norm(x, w.ffn_norm, eps=m.eps)
        gate = g.linear(h, w.ffn_gate, m.ffn, bias="optional")  # [rows, ffn]
        up = g.linear(h, w.ffn_up, m.ffn, bias="optional")
        x = g.add(x, g.linear(g.mul(g.silu(gate), up), w.ffn_down, m.width, bias="optional"))

    x = g.rms_norm(g.take(x), "output_norm.weight", eps=m.eps)  # [wants, width]
    g.logits(g.linear(x, "output.weight", m.vocab, tied="token_embd.weight"))
