"""The checks of a model file, in one order: `check` makes them for the commands, `loading.load` while it packs.

the container    at open (gguf): sizes, offsets, names
the model        every tensor has its place in the graph of a known family (model)
the card         the file's own sampling defaults are in their ranges (card)
the weights      every scale and float is finite (device: by looking at them, or while packing)
the text         a known tokenizer whose words fit the embedding, a template within its limit (text)
the file         is still the one that was opened (gguf, when it is closed)
"""

from __future__ import annotations

from dataclasses import dataclass

from woolly import model, text
from woolly.device import cpu
from woolly.errors import FileError, printable
from woolly.examine.card import Card, read_card
from woolly.gguf import GgufFile


@dataclass(frozen=True, slots=True)
class Checked:
    """What a file that passed every check holds."""

    graph: model.Graph
    card: Card
    tokenizer: text.Tokenizer
    template: text.ChatTemplate | None


def check(file: GgufFile, *, name: str = "", weights: bool = True) -> Checked:
    """Refuse a file that loading would refuse, with the same error. name: that the model goes by. weights: False leaves
    the values unread."""
    graph, card = model.build(file), read_card(file, name)
    if weights:
        cpu.check_finite(file)
    return Checked(graph, card, *read_text(file, graph))


def read_text(file: GgufFile, graph: model.Graph) -> tuple[text.Tokenizer, text.ChatTemplate | None]:
    """The tokenizer and the chat template of a file; a vocabulary of another size than the embedding is refused."""
    tokenizer = text.Tokenizer(file.meta)
    template = text.chat_template(file.meta, tokenizer)
    if tokenizer.vocab != graph.meta.vocab:
        raise FileError(
            f"{printable(file.path.name)}: {tokenizer.vocab:,} tokens, but {graph.meta.vocab:,} rows of the embedding",
            suggestion="in Python, LLM(..., tokenizer=False) runs the model on token ids alone",
            key="tokenizer.ggml.tokens",
        )
    return tokenizer, template
