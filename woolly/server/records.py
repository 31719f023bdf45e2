"""The record of a model, as the server tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from woolly.examine import Card


@dataclass(frozen=True, slots=True)
class Record:
    id: str
    modified: int
    card: Card

    def row(self, *, loaded: bool) -> dict[str, Any]:
        """The record as every client reads it: `name` and `id`, `size` and `size_bytes` are the same."""
        card = self.card
        return {
            "id": self.id,
            "name": self.id,
            "object": "model",
            "created": self.modified,
            "owned_by": "woolly",
            "provider": "woolly",
            "description": f"{card.architecture} family, {_short(card.parameters)} parameters, {card.quantization}",
            "path": card.file,
            "loaded": loaded,
            "size": card.size,
            "size_bytes": card.size,
            "parameters": card.parameters,
            "architecture": card.architecture,
            "quantization": card.quantization,
            "context_length": card.context,
            "capabilities": ["completion", "chat"] if card.chat else ["completion"],
            "features": {"chat": card.chat, "mcp": False, "vision": False, "function_calling": False},
            "metadata": {
                "format": "gguf",
                "modified": self.modified,
                "vocab_size": card.vocab or None,
                "hidden_size": card.width or None,
                "num_layers": card.layers or None,
                "num_heads": card.heads or None,
                "num_kv_heads": card.kv_heads or None,
            },
        }


def read_record(path: Path, id_: str) -> Record:
    """Open a file, read its header, close it."""
    from woolly import gguf  # NumPy comes with it
    from woolly.examine import read_card

    with gguf.open(path) as file:
        return Record(id_, int(path.stat().st_mtime), read_card(file))


def _short(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"
