"""How the answers of one file are written: its style, and which marks count wherever they stand."""

from __future__ import annotations

from dataclasses import dataclass

from woolly.request import Thought
from woolly.text.output.style import AnswerPart, Style
from woolly.text.output.styles import find_style
from woolly.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Output:
    """The style of one file's answers.

    anywhere: marks with a control token in them. They count wherever they stand; a mark of plain characters, which a
    model may also write about, only at the beginning of the answer or where it ends the part that it is in.
    tokens: those control tokens; the reader needs their text.
    """

    style: Style
    anywhere: frozenset[str] = frozenset()
    tokens: frozenset[int] = frozenset()

    def opened(self, prompt: str) -> AnswerPart | None:
        """The thought in which a prompt ends, so that the answer begins in it. Decided anew for each prompt."""
        end = prompt.rstrip()
        return next((part for part in self.style.parts if part.kind is Thought and end.endswith(part.opening)), None)


def find_output(template: str, tokenizer: Tokenizer) -> Output:
    """How the answers of a file are written, by its chat template and its vocabulary."""
    style = find_style(template)
    control = [text for text in tokenizer.control if any(text in mark for mark in style.written)]
    anywhere = frozenset(mark for mark in style.marks if any(text in mark for text in control))
    return Output(style, anywhere, frozenset(id for text in control if (id := tokenizer.id_of(text)) is not None))
