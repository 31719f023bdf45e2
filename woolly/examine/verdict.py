"""The one way to judge a model file: all checks, in one order, for the library and for every command.

the container    at open (gguf): sizes, offsets, names
the model        every tensor has its place in the graph of a known family (model)
the text         a known tokenizer whose words fit the embedding, a template within its limit (text)
the weights      every scale and float is a number (native: while packing, or by looking at them)
the file         is still the one that was opened (gguf)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from woolly import model, text
from woolly.errors import FileError, printable
from woolly.gguf import GgufFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Examined(Generic[T]):
    """A file that passed: `weights` is what the look at the weights gave."""

    graph: model.Graph
    tokenizer: text.Tokenizer | None
    template: text.ChatTemplate | None
    weights: T


def examine(
    file: GgufFile,
    weights: Callable[[model.Graph], T],
    *,
    tokenizer: bool = True,
    room: Callable[[model.Graph], None] = lambda graph: None,
) -> Examined[T]:
    """What the file holds, after every check. `weights` is called with the graph to look at the weights in its way.

    tokenizer: False leaves tokenizer and template unread, for a model that is run on token ids alone.
    room: called before anything that takes memory; it raises where the model does not fit.
    """
    graph = model.build(file)
    room(graph)
    # Reading the vocabulary and looking at the weights each take a while, and do not need each other.
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(_read_text, file.meta if tokenizer else None)
        looked = weights(graph)
        words, template = reading.result()
    if words is not None and words.vocab != graph.meta.vocab:
        raise FileError(
            f"{printable(file.path.name)}: {words.vocab:,} tokens, but {graph.meta.vocab:,} rows of the embedding",
            suggestion="LLM(..., tokenizer=False) runs the model on token ids alone",
            key="tokenizer.ggml.tokens",
        )
    file.check_unchanged()
    return Examined(graph, words, template, looked)


def _read_text(meta: Mapping[str, Any] | None) -> tuple[text.Tokenizer | None, text.ChatTemplate | None]:
    if meta is None:
        return None, None
    words = text.Tokenizer(meta)
    return words, text.chat_template(meta, words)
