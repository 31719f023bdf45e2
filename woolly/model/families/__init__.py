"""families: one file per family of models, each a function that writes the family's graph.

FAMILIES maps the architecture a file names to its family. A name is looked up here and nowhere else; a family names the
switches of meta.SWITCHES that it honours, all others are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from woolly.model.builder import Builder
from woolly.model.families import granite, llama, mistral3, qwen2, qwen3, smollm3
from woolly.model.meta import Meta

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
    """How to build a family's graph, and the switches of the metadata that it honours."""

    build: Callable[[Meta, Builder], None]
    switches: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    "llama": Family(llama.build),
    "qwen2": Family(qwen2.build),
    "qwen3": Family(qwen3.build),
    "granite": Family(granite.build, ("embedding_scale", "residual_scale", "logit_scale", "attention.scale")),
    "smollm3": Family(smollm3.build),
    "mistral3": Family(mistral3.build, ("attention.temperature_scale", "rope.scaling.yarn_log_multiplier")),
}
