"""The record of a model: what its file says about itself, read from the header alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    id: str
    file: str
    size: int
    modified: int
    parameters: int
    architecture: str
    quantization: str
    context: int
    chat: bool
    sizes: tuple[tuple[str, int | None], ...]

    def row(self, *, loaded: bool) -> dict[str, Any]:
        """The record as every client reads it: `name` and `id`, `size` and `size_bytes` are the same."""
        return {
            "id": self.id,
            "name": self.id,
            "object": "model",
            "created": self.modified,
            "owned_by": "woolly",
            "provider": "woolly",
            "description": f"{self.architecture} family, {_short(self.parameters)} parameters, {self.quantization}",
            "path": self.file,
            "loaded": loaded,
            "size": self.size,
            "size_bytes": self.size,
            "parameters": self.parameters,
            "architecture": self.architecture,
            "quantization": self.quantization,
            "context_length": self.context,
            "capabilities": ["completion", "chat"] if self.chat else ["completion"],
            "features": {"chat": self.chat, "mcp": False, "vision": False, "function_calling": False},
            "metadata": {"format": "gguf", "modified": self.modified} | dict(self.sizes),
        }


def read_record(path: Path, id_: str) -> Record:
    """Open a file, read its header, close it."""
    from woolly import gguf  # NumPy comes with it

    with gguf.open(path) as file:
        meta = file.meta
        architecture = str(meta.get("general.architecture", ""))
        weights: Counter[str] = Counter()
        parameters = 0
        for info in file.tensors.values():
            parameters += math.prod(info.shape)
            if len(info.shape) > 1:
                weights[info.format] += info.nbytes

        def number(key: str) -> int | None:
            value = meta.get(f"{architecture}.{key}")
            return value if type(value) is int else None

        tokens = meta.get("tokenizer.ggml.tokens")
        return Record(
            id=id_,
            file=path.name,
            size=file.size,
            modified=int(path.stat().st_mtime),
            parameters=parameters,
            architecture=architecture,
            quantization=weights.most_common(1)[0][0] if weights else "",
            context=number("context_length") or 0,
            chat="tokenizer.chat_template" in meta,
            sizes=(
                ("vocab_size", number("vocab_size") or (len(tokens) if isinstance(tokens, list) else None)),
                ("hidden_size", number("embedding_length")),
                ("num_layers", number("block_count")),
                ("num_heads", number("attention.head_count")),
                ("num_kv_heads", number("attention.head_count_kv")),
            ),
        )


def _short(count: int) -> str:
    return f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.0f} M"
