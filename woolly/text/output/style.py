"""What a style of answers is: the marks of its parts, its calls and how they are written, its heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from woolly.request import PartText, Thought
from woolly.request.messages import Tool
from woolly.text.output.calls import Reader
from woolly.text.output.heads import Head
from woolly.text.output.values import Reading, Source

Kind: TypeAlias = type[PartText]


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A part of an answer between two marks, and the kind of event that its text becomes."""

    opening: str
    closing: str
    kind: Kind = Thought


THINK = AnswerPart("<think>", "</think>")
BRACKETS = AnswerPart("[THINK]", "[/THINK]")


@dataclass(frozen=True, slots=True)
class Form:
    """How calls are written. call: one call, with NAME and ARGUMENTS in place of its own.

    before, after: texts around all calls. between: the text between two calls; None where an answer has one call.
    """

    call: str
    before: str = ""
    between: str | None = "\n"
    after: str = ""

    def around(self, name: str) -> tuple[str, str]:
        """The texts before and after the arguments of a call."""
        before, after = self.call.split("ARGUMENTS")
        return before.replace("NAME", name), after

    def write(self, calls: Sequence[tuple[str, str]]) -> str:
        """The text of calls, each a name and its arguments as JSON."""
        texts = (before + arguments + after for name, arguments in calls for before, after in (self.around(name),))
        return self.before + (self.between or "\n").join(texts) + self.after


@dataclass(frozen=True, slots=True)
class Calls:
    """The marks round calls, and the reader of what is between them.

    form: how calls are written, if their arguments are JSON; else None.

    openings: each begins a call. sections: may stand before the first opening. closings: may follow a call.
    first: begins a call at the beginning of an answer, and is part of the call; only names of the request's tools are
    calls then. known: the same for a first call that no section has opened. joined: the next call may follow without a
    mark. inner: further marks that the reader looks for.
    """

    reader: Reader
    openings: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    closings: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    known: bool = False
    joined: bool = False
    inner: tuple[str, ...] = ()
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of messages: the marks that begin one, and the reader, which is also tried at the beginning of an answer.

    plain: where its call cannot be read, the head is text, too.
    """

    openings: tuple[str, ...]
    read: Callable[[Source, Mapping[str, Tool], bool], Reading[Head]]
    inner: tuple[str, ...] = ()
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """found_by: texts that all occur in the template. ignored: marks that are dropped wherever they mean nothing else.

    No mark of a style contains another one, except at its end. With heads, the parts tell how a prompt may end and
    how an answer may be framed; the heads tell the rest.
    """

    name: str
    found_by: tuple[str, ...]
    parts: tuple[AnswerPart, ...] = (THINK, BRACKETS)
    ignored: tuple[str, ...] = ()
    calls: Calls | None = None
    heads: Heads | None = None

    @property
    def marks(self) -> frozenset[str]:
        """The marks of parts, and the ignored ones."""
        return frozenset((*self.ignored, *(mark for part in self.parts for mark in (part.opening, part.closing))))

    @property
    def written(self) -> frozenset[str]:
        """All marks, those of calls and heads too."""
        calls, heads = self.calls, self.heads
        of_calls = (*calls.openings, *calls.sections, *calls.closings, *calls.inner) if calls else ()
        return self.marks | {*of_calls, *((*heads.openings, *heads.inner) if heads else ())}
