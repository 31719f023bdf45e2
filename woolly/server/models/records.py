"""The record of a model, as the server shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from woolly.server.dialects.base.shapes import Count, Shape
from woolly.store import Model

if TYPE_CHECKING:
    from woolly.examine import Card


class ModelFeatures(Shape, kw_only=True):
    chat: bool
    mcp: bool = False
    vision: bool = False
    function_calling: bool = False


class ModelMetadata(Shape, kw_only=True):
    format: str = "gguf"
    modified: int
    vocab_size: int | None
    hidden_size: int | None
    num_layers: int | None
    num_heads: int | None
    num_kv_heads: int | None


class ModelRecord(Shape, kw_only=True):
    """`name` and `id`, `size` and `size_bytes` are the same: clients read one or the other."""

    id: str
    name: str
    aliases: list[str]
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "woolly"
    provider: str = "woolly"
    description: str
    path: str
    loaded: bool
    size: Count
    size_bytes: Count
    parameters: Count
    architecture: str
    quantization: str
    context_length: Count
    capabilities: list[str]
    features: ModelFeatures
    sampling: dict[str, float]
    metadata: ModelMetadata


def record(model: Model, card: Card, aliases: list[str], *, loaded: bool) -> ModelRecord:
    """The record of a model with this card. aliases: names that the settings give it."""
    modified = int(model.modified)
    return ModelRecord(
        id=model.name,
        name=model.name,
        aliases=aliases,
        created=modified,
        description=f"{card.architecture} family, {_short(card.parameters)} parameters, {card.quantization}",
        path=card.file,
        loaded=loaded,
        size=card.size,
        size_bytes=card.size,
        parameters=card.parameters,
        architecture=card.architecture,
        quantization=card.quantization,
        context_length=card.context,
        capabilities=_capabilities(card),
        # Every chat model is told of tools in its own way, and a call can be forced; MCP offers whatever writes text.
        features=ModelFeatures(chat=card.chat, mcp=card.gives == "logits", function_calling=card.chat),
        sampling=card.sampling,
        metadata=ModelMetadata(
            modified=modified,
            vocab_size=card.vocab or None,
            hidden_size=card.width or None,
            num_layers=card.layers or None,
            num_heads=card.heads or None,
            num_kv_heads=card.kv_heads or None,
        ),
    )


def _capabilities(card: Card) -> list[str]:
    if card.gives != "logits":
        return ["embedding" if card.gives == "embedding" else "rerank"]
    return ["completion", "chat", "tools"] if card.chat else ["completion"]


def _short(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"
