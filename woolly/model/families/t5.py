"""The encoder of T5."""

from __future__ import annotations

import math

from woolly.limits import LIMITS
from woolly.model.blocks.endings import embedding
from woolly.model.blocks.layers import gated_ffn, plain_ffn, qkv
from woolly.model.builder import Builder
from woolly.model.meta import Block, Meta

FAR = 128  # distance from which all share a bucket


def build(m: Meta, g: Builder) -> None:
    """Norms before each branch; scores are not scaled, and gain a number for their distance; gated GELU, or ReLU
    without a gate."""
    x = g.embed()  # [rows, width]
    gains = ""
    for w in g.blocks(prefix="enc."):
        if not gains or g.has(w.attn_rel_b):  # most files have one for all layers, in the first
            gains = _gains(m, g, w)
        q, k, v = qkv(g, w, g.rms_norm(x, w.attn_norm))
        x = g.add(x, g.linear(g.attend(w, q, k, v, scale=1.0, slopes=gains), w.attn_o, g.width))
        h = g.rms_norm(x, w.ffn_norm)
        x = g.add(x, gated_ffn(g, w, h, "gelu") if g.has(w.ffn_gate) else plain_ffn(g, w, h, "relu"))
    embedding(g, m, x, lambda y: g.rms_norm(y, "enc.output_norm.weight"))


def _gains(m: Meta, g: Builder, w: Block) -> str:
    """What scores gain at distances -FAR .. FAR: of each head the number of the bucket that the distance falls into."""
    buckets = m.keys.count("attention.relative_buckets_count", LIMITS.width, least=4)
    table = g.values(w.attn_rel_b, buckets, w.heads)
    rows = [_bucket(distance, buckets // 2) for distance in range(-FAR, FAR + 1)]
    return g.constant(f"gains.{w.index}", table[rows].T.ravel().tolist())


def _bucket(distance: int, half: int) -> int:
    """Half of the buckets are for later positions; each half has one for each short distance, then wider ones."""
    exact, size = half // 2, abs(distance)
    if size >= exact:
        wide = math.log(size / exact) * (half - exact) / math.log(FAR / exact)
        size = min(math.floor(exact + wide), half - 1)
    return size + (half if distance > 0 else 0)
