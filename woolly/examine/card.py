"""The card of a model: what its file says about itself, read from the header alone.

Library, commands and server show parts of it. Any GGUF file has a card, also one that cannot be run.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from woolly import gguf
from woolly.errors import FileError, RequestError, printable
from woolly.examine.abilities import Abilities
from woolly.examine.recommended import recommended
from woolly.model import ENCODERS, POOLINGS
from woolly.request import Sampling
from woolly.text import find_style

OutputKind = Literal["logits", "embedding", "rank"]

SAMPLING = {  # metadata of a file -> field of Sampling
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.xtc_probability": "xtc_probability",
    "general.sampling.xtc_threshold": "xtc_threshold",
    "general.sampling.penalty_last_n": "repeat_last_n",
    "general.sampling.penalty_repeat": "repetition_penalty",
    "general.sampling.mirostat": "mirostat",
    "general.sampling.mirostat_tau": "mirostat_tau",
    "general.sampling.mirostat_eta": "mirostat_eta",
}


@dataclass(frozen=True, slots=True)
class Card:
    """One model. Sizes are bytes. What the file does not tell is 0 or ""."""

    path: Path  # of the first part, where the model is a set of files
    file: str  # its name, safe to print
    size: int
    parts: int
    version: int  # of GGUF
    unused: int  # bytes that belong to no tensor
    name: str  # that it goes by
    title: str  # that the file has for it
    architecture: str
    licence: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context: int  # that the model was made for
    parameters: int
    tensors: int
    types: dict[str, int]  # how many tensors of each
    quantization: str  # the type of most bytes of its matrices
    gives: OutputKind  # the output for a text: logits of the next token, an embedding, or scores
    pooling: str  # how an embedding is made of the rows of a text: a word of POOLINGS, or "none": each row is one
    labels: tuple[str, ...]  # of the scores, where the model gives scores
    chat: bool  # whether it has a chat template, and answers
    style: str  # of its answers: the name of a row of text/output/styles.py
    sampling: dict[str, Any]  # that the file recommends, else its publisher (recommended.py)
    template: Abilities | None = None  # None where there is none, or where it was not rendered
    drafts: int = 0  # further layers, which predict several tokens at once: they are left out


def beyond_training(card: Card, context: int | None) -> str:
    """A warning where a context is larger than the one that a model was trained for; "" where it is not."""
    if context is None or not 0 < card.context < context:
        return ""
    return (
        f"{card.name} was trained for a context of {card.context:,} tokens, and {context:,} are asked for: it will not "
        f"make much of what lies beyond; ask for at most {card.context:,}, or take a model that was trained for more"
    )


def read_card(file: gguf.GgufFile, name: str = "") -> Card:
    """The card of an open file; sampling defaults out of their range are refused. name: that the model goes by; none:
    the one that the file has."""
    architecture, template = _text(file, "general.architecture"), _text(file, "tokenizer.chat_template")
    matrices: Counter[str] = Counter()  # bytes of each type
    for tensor in file.tensors.values():
        if len(tensor.shape) > 1:
            matrices[tensor.format] += tensor.nbytes

    def size(key: str) -> int:
        return _number(file.meta.get(f"{architecture}.{key}"))

    width, heads, drafts = size("embedding_length"), size("attention.head_count"), size("nextn_predict_layers")
    title, pooling = _text(file, "general.name") or file.path.stem, _pooling(file, architecture)
    return Card(
        path=file.path,
        file=printable(file.path.name),
        size=file.size,
        parts=len(file.parts),
        version=file.parts[0].header.version,
        unused=sum(part.unused for part in file.parts),
        name=printable(name or title),
        title=printable(title),
        architecture=printable(architecture),
        licence=_licence(file),
        layers=max(size("block_count") - drafts, 0),
        width=width,
        heads=heads,
        kv_heads=size("attention.head_count_kv") or heads,
        head_dim=size("attention.key_length") or (width // heads if heads else 0),
        ffn=size("feed_forward_length"),
        vocab=_vocabulary(file) or size("vocab_size"),
        context=size("context_length"),
        parameters=sum(math.prod(tensor.shape) for tensor in file.tensors.values()),
        tensors=len(file.tensors),
        types=dict(Counter(tensor.format for tensor in file.tensors.values()).most_common()),
        quantization=max(matrices, key=matrices.__getitem__, default=""),
        gives=(gives := _gives(pooling)),
        pooling=pooling,
        labels=_labels(file, architecture),
        chat=bool(template) and gives == "logits",
        style=find_style(template).name if template else "",
        sampling=_sampling(file) or dict(recommended(architecture, title)),
        drafts=drafts,
    )


def _pooling(file: gguf.GgufFile, architecture: str) -> str:
    number = file.meta.get(f"{architecture}.pooling_type")
    pooling = POOLINGS[number] if type(number) is int and 0 <= number < len(POOLINGS) else ""
    bidirectional = architecture in ENCODERS or file.meta.get(f"{architecture}.attention.causal") is False
    return pooling or ("none" if bidirectional else "")


def _gives(pooling: str) -> OutputKind:
    return "rank" if pooling == "rank" else "embedding" if pooling else "logits"


def _labels(file: gguf.GgufFile, architecture: str) -> tuple[str, ...]:
    labels = file.meta.get(f"{architecture}.classifier.output_labels")
    return tuple(printable(label) for label in labels) if isinstance(labels, list | tuple) else ()


def _text(file: gguf.GgufFile, key: str) -> str:
    value = file.meta.get(key)
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    """A count that a file gives once, or for each layer alike; otherwise 0."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size and (value == value[0]).all():
        value = int(value[0])
    return value if type(value) is int and value > 0 else 0


def _vocabulary(file: gguf.GgufFile) -> int:
    """Rows of the embedding; in a file without weights, the words of its tokenizer."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None:
        return embedding.shape[0]
    words = "tokenizer.ggml.tokens"
    return (file.meta.length(words) or 0) if words in file.meta else 0


def _licence(file: gguf.GgufFile) -> str:
    """The licence by its full name, else its short one, and where to read it."""
    name, short, link = (printable(_text(file, f"general.license{key}")) for key in (".name", "", ".link"))
    return " ".join(filter(None, (name or short, f"({link})" if link else "")))


def _sampling(file: gguf.GgufFile) -> dict[str, Any]:
    values: dict[str, Any] = {name: file.meta[key] for key, name in SAMPLING.items() if key in file.meta}
    try:
        Sampling(**values)
    except RequestError as error:
        raise FileError(f"{printable(file.path.name)}: its sampling defaults are wrong: {error.message}") from error
    return values
