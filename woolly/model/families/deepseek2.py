"""DeepSeek 2 and 3, R1, Kimi K2, GLM 4.7 Flash; Mistral 4; MiniCPM 3."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from woolly.model.blocks.latent import latent_attention, read_latent
from woolly.model.blocks.layers import feed, gated_ffn, head
from woolly.model.builder import Builder
from woolly.model.meta import Gating, Meta
from woolly.model.tables import RopeTable, TemperatureTable

GLM_FLASH = (154_880, (47, 48))  # vocabulary and layers of a model whose files do not say how experts are scored


def build(m: Meta, g: Builder, *, constant: bool = True) -> None:
    """Latent attention with rotated neighbours; first layers without experts, a shared expert. `constant`: where the
    file has a multiplier of yarn, cosines keep their size and scores alone grow."""
    how, (rope, growth) = read_latent(m), _yarn(m, constant=constant)
    table = g.rope_table(rope, neox=False)
    temperature_table = _temperature(m, g)
    gating: Gating = "sigmoid" if m.vocab == GLM_FLASH[0] and m.layers in GLM_FLASH[1] else "softmax"
    mixture = m.mixture(gating, renormalized=None, by_key=True, scaled=True)
    x = g.embed()  # [rows, width]
    for w in g.blocks():
        h = g.rms_norm(x, w.attn_norm)
        x = g.add(
            x,
            latent_attention(
                g, w, h, how, table=table, scale=how.scale * growth**2, temperature_table=temperature_table
            ),
        )
        x = g.add(x, feed(g, w, g.rms_norm(x, w.ffn_norm), mixture))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(head(g, m, x))


def build_minicpm3(m: Meta, g: Builder) -> None:
    """Rotated halves; the embedding, the branches and the logits have constants of the family."""
    how, table = read_latent(m), g.rope_table(m.rope, neox=True)
    residual = 1.4 / math.sqrt(m.layers)
    x = g.scale(g.embed(), 12.0)  # [rows, width]
    for w in g.blocks():
        a = latent_attention(g, w, g.rms_norm(x, w.attn_norm), how, table=table)
        x = g.add(x, g.scale(a, residual))
        x = g.add(x, g.scale(gated_ffn(g, w, g.rms_norm(x, w.ffn_norm)), residual))
    x = g.rms_norm(g.take(x), "output_norm.weight")
    g.logits(g.scale(head(g, m, x), 256.0 / m.width))


def _yarn(m: Meta, *, constant: bool) -> tuple[RopeTable, float]:
    """The rotary table, and the factor that queries and keys each grow by, beside the one in its cosines."""
    stated = m.keys.real("rope.scaling.yarn_log_multiplier", least=0.0, most=1e6, default=0.0)
    multiplier = stated / float(np.float32(0.1))
    log = math.log(m.rope.factor)
    rope = replace(m.rope, log_multiplier=1.0 if constant and multiplier else multiplier)
    inside = rope.magnitude() / rope.attn_factor
    return rope, inside * (1.0 + 0.1 * multiplier * log)


def _temperature(m: Meta, g: Builder) -> str:
    scale = m.keys.real("attention.temperature_scale", default=0.0)
    if not scale:
        return ""
    length = m.keys.count("attention.temperature_length", 2**31 - 1, m.rope.original)
    return g.table("temperature", TemperatureTable(scale, length))
