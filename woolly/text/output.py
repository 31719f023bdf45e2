"""The text of an answer told apart: what the model thinks becomes `Thought` events, what it says stays `Text`.

What holds:
- However the text is cut into events, the joined thoughts and the joined text are the same.
- Nothing is lost but marks and the white space beside them. A mark out of place is text, and a thought that never ends
  is a thought to the end. All tokens and likelihoods are given on, in order, those of marks with the thought.
- Text is held back only while it may be part of a mark, or the white space before one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from woolly.request import End, Event, Failed, Logprob, Text, Thought
from woolly.text.styles import Kind, Part, Style, find_style
from woolly.text.tokenizer import Tokenizer


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

    def opened(self, prompt: str) -> Part | None:
        """The thought in which a prompt ends, so that the answer begins in it. Decided anew for each prompt."""
        end = prompt.rstrip()
        return next((part for part in self.style.parts if part.kind is Thought and end.endswith(part.opening)), None)


def find_output(template: str, tokenizer: Tokenizer) -> Output:
    """How the answers of a file are written, by its chat template and its vocabulary."""
    style = find_style(template)
    control = [text for text in tokenizer.control if any(text in mark for mark in style.marks)]
    anywhere = frozenset(mark for mark in style.marks if any(text in mark for text in control))
    return Output(style, anywhere, frozenset(id for text in control if (id := tokenizer.id_of(text)) is not None))


class OutputReader:
    """Reads one answer, event by event. opened: the prompt ends in this part."""

    def __init__(self, output: Output, opened: Part | None = None) -> None:
        self._anywhere, self._plain = output.anywhere, output.style.marks - output.anywhere
        self._parts = {part.opening: part for part in output.style.parts}
        self._ignored = output.style.ignored
        self._part = opened
        self._kind: Kind = opened.kind if opened else Text
        self._marked = opened is not None  # a mark was read: white space after it goes with it
        self._begun = False  # there is text of this thought, or, outside of thoughts, of the answer
        self._answered = False  # there is text of the answer
        self._thought = False  # there is text of a thought
        self._pending = ""
        self._tokens: list[int] = []  # not given on yet
        self._logprobs: list[Logprob] = []
        self._made: list[Event] = []

    def feed(self, event: Event) -> list[Event]:
        """The events that are certain now."""
        if isinstance(event, Text):
            self._tokens += event.tokens
            self._logprobs += event.logprobs
            self._pending += event.text
            self._read()
        else:
            if isinstance(event, End | Failed):
                text, self._pending = self._pending, ""
                self._give(text)
                self._settle()
            self._made.append(event)
        made, self._made = self._made, []
        return made

    def _read(self) -> None:
        while True:
            first, anywhere = self._counting()
            found = _find(self._pending, first, anywhere)
            if found is None:
                break
            at, mark = found
            before, self._pending = self._pending[:at], self._pending[at + len(mark) :]
            if self._is_text(mark, self._begun or bool(before.strip())):
                self._give(before + mark)
            else:
                self._give(before.rstrip())
                self._pass(mark)
        cut = _certain(self._pending, first, anywhere)
        sure, self._pending = self._pending[:cut], self._pending[cut:]
        self._give(sure)

    def _counting(self) -> tuple[Iterable[str], Iterable[str]]:
        """The marks that count here: those that must come first, and those that may come anywhere."""
        anywhere = self._anywhere | {self._part.closing} if self._part else self._anywhere
        if self._begun:
            return (), anywhere
        return {self._part.opening} if self._part and self._kind is Thought else self._plain, anywhere

    def _is_text(self, mark: str, begun: bool) -> bool:
        """Whether a mark has no meaning here. At the beginning of a part such a mark is a repetition, and dropped."""
        if opens := self._parts.get(mark):
            return begun and opens.kind is Thought and self._kind is Thought
        return begun and mark not in self._ignored and not (self._part and mark == self._part.closing)

    def _pass(self, mark: str) -> None:
        """Enter or leave a part."""
        self._marked = True
        opens = self._parts.get(mark)
        if not opens and not (self._part and mark == self._part.closing):
            return
        self._part, kind = opens, opens.kind if opens else Text
        if self._kind is Thought and kind is Text:
            self._settle()
        self._kind = kind
        self._begun = self._answered and kind is Text

    def _give(self, text: str) -> None:
        if self._marked and not self._begun:
            text = text.lstrip()
        if not text:
            return
        if self._kind is Text:
            self._answered = True
        else:
            text = text if self._begun or not self._thought else "\n" + text  # one line between two thoughts
            self._thought = True
        self._begun = True
        self._made.append(self._event(text))

    def _settle(self) -> None:
        """Give tokens on that brought no text."""
        if self._tokens:
            self._made.append(self._event(""))

    def _event(self, text: str) -> Event:
        event = self._kind(text, tuple(self._tokens), tuple(self._logprobs))
        self._tokens.clear()
        self._logprobs.clear()
        return event


def _find(text: str, first: Iterable[str], anywhere: Iterable[str]) -> tuple[int, str] | None:
    """Where the leftmost mark begins, and which it is."""
    begin = len(text) - len(text.lstrip())
    found = [(begin, mark) for mark in first if text.startswith(mark, begin)]
    found += [(at, mark) for mark in anywhere if (at := text.find(mark)) >= 0]
    return min(found, default=None)


def _certain(text: str, first: Iterable[str], anywhere: Iterable[str]) -> int:
    """How many characters are neither the beginning of a mark nor white space before one."""
    start = text.lstrip()
    if any(mark.startswith(start) for mark in first):
        return 0
    if not anywhere:
        return len(text)
    return len(text[: len(text) - max(_beginning(text, mark) for mark in anywhere)].rstrip())


def _beginning(text: str, mark: str) -> int:
    """How many characters at the end of the text may be the beginning of the mark."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-n:])), 0)
