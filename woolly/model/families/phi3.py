"""Phi 3 and 4, and Phi 3.5's mixture of experts."""

from __future__ import annotations

from woolly.model.builder import Builder
from woolly.model.families import llama
from woolly.model.meta import Meta


def build(m: Meta, g: Builder) -> None:
    """As Llama with rotated halves; angles have factors for short and for long contexts. Windows that files name are
    not part of the trained model and are passed over."""
    m.keys.get("attention.sliding_window")
    llama.build(m, g, neox=True)
