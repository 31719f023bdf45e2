"""The sampling of requests that say nothing of it: one decision for the routes of all dialects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from woolly.config import Settings
from woolly.examine import Card
from woolly.request import Sampling

OPENAI = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}  # the model's own probabilities


def with_defaults(sampling: Sampling, settings: Settings, card: Card) -> Sampling:
    """What nobody chose is as the model's card recommends, else as `Sampling` has it; or as OpenAI's server has it."""
    if settings.sampling == "openai":
        return replace(sampling.recommended(OPENAI), unset=frozenset())
    return sampling.recommended(card.sampling)


def described(sampling: Sampling) -> str:
    """A header: how the tokens of an answer were chosen."""
    values: dict[str, Any] = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "min_p")}
    return ", ".join(f"{name}={value:g}" for name, value in values.items())
