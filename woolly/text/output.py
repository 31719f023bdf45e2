"""The text of an answer told apart: what the model thinks, what it says, and the tools that it asks for.

What holds:
- However the text is cut into events, the joined thoughts, text and calls are the same.
- Nothing is lost but marks, heads and the white space beside them. A mark out of place is text, a call that cannot be
  read is text, and a thought that never ends is a thought to the end. All tokens and likelihoods are given on, in
  order: those of what is lost in pieces without text, unless a token has both.
- Text is held back only while it may be part of a mark or of a call, or the white space before one.
- A call within a thought counts only if nothing but its end follows: models draft calls while they think.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace

from woolly.messages import Tool
from woolly.request import Arguments, CallStart, End, Event, Failed, Logprob, Text, Thought
from woolly.text.calls import Found
from woolly.text.heads import Head
from woolly.text.styles import Kind, Part, Style, find_style
from woolly.text.tokenizer import Tokenizer
from woolly.text.values import Broken, Cut, Reading, Source


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
    control = [text for text in tokenizer.control if any(text in mark for mark in style.written)]
    anywhere = frozenset(mark for mark in style.marks if any(text in mark for text in control))
    return Output(style, anywhere, frozenset(id for text in control if (id := tokenizer.id_of(text)) is not None))


class OutputReader:
    """Reads one answer, event by event. opened: the prompt ends in this part. tools: what may be called.

    certain: calls follow a grammar, so that arguments are given on while they are written; else a call is told when it
    is complete, because what was told cannot become text again.
    """

    def __init__(
        self, output: Output, opened: Part | None = None, tools: Iterable[Tool] = (), *, certain: bool = False
    ) -> None:
        style = output.style
        self._anywhere, self._plain = output.anywhere, style.marks - output.anywhere
        self._parts = {part.opening: part for part in style.parts}
        self._ignored = style.ignored
        self._heads = style.heads
        if self._heads:  # the heads tell which part begins
            self._parts, self._plain = {}, frozenset()
            openings = self._heads.openings
            self._anywhere = frozenset((*openings, *(mark for mark in style.ignored if not mark.startswith(openings))))
        self._tools = {tool.name: tool for tool in tools}
        self._calls = style.calls if self._tools else None
        self._certain = certain
        self._part = opened
        self._kind: Kind = opened.kind if opened else Text
        self._marked = opened is not None  # a mark was read: white space after it goes with it
        self._begun = False  # there is text of this thought, or, outside of thoughts, of the answer
        self._answered = False  # there is text of the answer
        self._thought = False  # there is text of a thought
        self._line = False  # the next text begins on a line of its own
        self._called = False
        self._last: type[Text] | type[Thought] | type[Arguments] = self._kind  # of what was given on
        self._pending = ""
        self._ended = False
        self._tokens: list[int] = []  # not given on yet
        self._logprobs: list[Logprob] = []
        self._made: list[Event] = []
        self._attempt: _Attempt | None = None
        if self._heads and not opened:
            self._begin("", "")

    def feed(self, event: Event) -> list[Event]:
        """The events that are certain now."""
        if isinstance(event, Text):
            self._tokens += event.tokens
            self._logprobs += event.logprobs
            self._pending += event.text
            self._read()
            if event.text and not self._pending and self._attempt is None:
                self._settle()
        else:
            if isinstance(event, End | Failed):
                self._ended = True
                self._read()
                text, self._pending = self._pending, ""
                self._give(text)
                self._settle()
            if isinstance(event, End) and event.reason == "stop" and self._called:
                event = replace(event, reason="calls")
            self._made.append(event)
        made, self._made = self._made, []
        return made

    def _read(self) -> None:
        while True:
            if self._attempt is not None:
                if not self._advance(self._attempt):
                    return
                continue
            if self._marked and not self._begun:
                self._pending = self._pending.lstrip()
            first, anywhere = self._counting()
            found = _find(self._pending, first, anywhere)
            if found is None:
                break
            at, mark = found
            before, self._pending = self._pending[:at], self._pending[at:]
            said = before.rstrip()
            if self._opens(mark):
                self._give(said)
                self._begin(mark, before[len(said) :])
                continue
            self._pending = self._pending[len(mark) :]
            if self._is_text(mark, self._begun or bool(said)):
                self._give(before + mark)
            else:
                self._give(said)
                self._pass(mark)
        cut = _certain(self._pending, first, anywhere)
        sure, self._pending = self._pending[:cut], self._pending[cut:]
        self._give(sure)

    def _counting(self) -> tuple[frozenset[str], frozenset[str]]:
        """The marks that count here: those that must come first, and those that may come anywhere."""
        anywhere = self._anywhere | {self._part.closing} if self._part else self._anywhere
        first: frozenset[str] = frozenset()
        if not self._begun:
            first = frozenset({self._part.opening}) if self._part and self._kind is Thought else self._plain
        if self._calls and not self._heads:
            anywhere |= {*self._calls.openings, *self._calls.sections}
            if not self._begun and self._kind is Text and not self._called:
                first |= {*self._calls.first}
        return first, anywhere

    def _opens(self, mark: str) -> bool:
        """Whether a mark begins a head or a call."""
        if self._heads:
            return mark in self._heads.openings
        calls = self._calls
        return calls is not None and mark in (*calls.openings, *calls.sections, *calls.first)

    def _is_text(self, mark: str, begun: bool) -> bool:
        """Whether a mark has no meaning here. At the beginning of a part such a mark is a repetition, and dropped."""
        if opens := self._parts.get(mark):
            return begun and opens.kind is Thought and self._kind is Thought
        return begun and mark not in self._ignored and not (self._part and mark == self._part.closing)

    def _pass(self, mark: str) -> None:
        """Enter or leave a part."""
        self._marked = True
        opens = self._parts.get(mark)
        if opens or self._heads or (self._part and mark == self._part.closing):
            self._enter(opens.kind if opens else Text, opens)

    def _enter(self, kind: Kind, part: Part | None = None) -> None:
        self._part = part
        if self._kind is Thought and kind is Text:
            self._settle()
        self._kind = self._last = kind
        self._begun = self._answered and kind is Text

    # Heads and calls are read by generators over what is pending. An attempt that fails leaves its mark as text.

    def _begin(self, mark: str, space: str) -> None:
        attempt = self._attempt = _Attempt(mark, space)
        if self._heads:
            attempt.reading = self._head(attempt)
        else:
            attempt.reading = self._draft(attempt) if self._kind is Thought else self._run(attempt)

    def _advance(self, attempt: _Attempt) -> bool:
        """Go on with an attempt; whether it is over."""
        source = attempt.source
        source.text, source.ended = self._pending, self._ended
        try:
            next(attempt.reading)
        except StopIteration:
            self._pending = source.text[attempt.kept :]
        except (Broken, Cut):
            self._pending = source.text[len(attempt.mark) :]
            self._give(attempt.space + attempt.mark)
        else:
            if self._certain:
                self._progress(attempt)
            return False
        self._attempt = None
        return True

    def _head(self, attempt: _Attempt) -> Reading[None]:
        """A head, and where it is for a tool, the call."""
        assert self._heads is not None
        source = attempt.source
        head: Head = yield from self._heads.read(source, self._tools, not attempt.mark)
        attempt.kept, found = source.at, None
        if head.tool and self._calls:
            try:
                found = yield from self._one(attempt, "", head.tool)
            except (Broken, Cut):
                if self._heads.plain:
                    raise
        self._marked = True
        self._enter(head.kind)
        self._line = self._answered and head.kind is Text
        if found is not None:
            self._tell(attempt, found)
            yield from self._closings(attempt)

    def _run(self, attempt: _Attempt) -> Reading[None]:
        """Calls that follow each other."""
        found = yield from self._one(attempt, attempt.mark)
        while True:
            self._tell(attempt, found)
            try:
                yield from self._closings(attempt)
                mark = yield from self._next(attempt)
                if mark is None:
                    return
                found = yield from self._one(attempt, mark)
            except (Broken, Cut):
                return

    def _draft(self, attempt: _Attempt) -> Reading[None]:
        """Calls in a thought, which are calls if the answer ends with them."""
        source, found = attempt.source, list[Found]()
        mark: str | None = attempt.mark
        while mark is not None:
            found += yield from self._one(attempt, mark)
            yield from self._closings(attempt)
            mark = yield from self._next(attempt)
        yield from source.space()
        if self._part:
            yield from source.take(self._part.closing)
        yield from source.space()
        if (yield from source.peek()):
            raise Broken
        self._tell(attempt, found)

    def _one(self, attempt: _Attempt, mark: str, name: str = "") -> Reading[list[Found]]:
        """What a mark opens: a call, or a list of them. No mark: the next call begins where the last one ended."""
        calls, source = self._calls, attempt.source
        assert calls is not None
        known = mark in calls.first or (calls.known and not attempt.kept and mark not in calls.sections)
        if mark not in calls.first:
            source.at += len(mark)
        if mark in calls.sections or (name and calls.sections):
            yield from source.space()
            if name:
                yield from source.expect(*calls.sections)
                yield from source.space()
            yield from source.expect(*calls.openings)
        try:
            return (yield from calls.reader.read(source, self._tools, known, name))
        except Cut:
            if attempt.told == attempt.settled:
                raise
            source.at = len(source.text)  # its beginning was told, and cannot become text
            return []

    def _closings(self, attempt: _Attempt) -> Reading[None]:
        """The marks that end a call, and brackets too many before one."""
        calls, source = self._calls, attempt.source
        assert calls is not None
        while True:
            attempt.kept = source.at
            yield from source.space("}])" if calls.joined else "")
            if not (yield from source.take(*calls.closings)):
                source.at = attempt.kept
                return

    def _next(self, attempt: _Attempt) -> Reading[str | None]:
        """The mark of a call that follows at once; "" if it needs none, None if there is no call."""
        calls, source = self._calls, attempt.source
        assert calls is not None
        yield from source.space()
        for mark in (*calls.sections, *calls.openings):
            if (yield from source.begins(mark)):
                return mark
        if calls.joined:
            yield from source.space(";,")
            if (yield from source.peek()) in ("{", "["):
                return calls.first[0] if calls.first else ""
        source.at = attempt.kept
        return None

    def _tell(self, attempt: _Attempt, found: list[Found]) -> None:
        """Give calls on. Those whose beginning was told are given to their end."""
        if self._certain:
            self._progress(attempt)
        if attempt.told == attempt.settled:
            for call in found:
                self._start(call.name, call.id)
                self._made.append(self._event(call.text, Arguments))
        attempt.kept, attempt.settled = attempt.source.at, attempt.told
        self._marked = True

    def _progress(self, attempt: _Attempt) -> None:
        """Give on what is known of calls that are still being written."""
        source = attempt.source
        while attempt.told <= len(source.started):
            if attempt.told:
                call = source.started[attempt.told - 1]
                end = source.at if call.end is None else call.end
                if attempt.sent < end:
                    self._made.append(self._event(source.text[attempt.sent : end], Arguments))
                    attempt.sent = end
                if call.end is None:
                    return
            if attempt.told == len(source.started):
                return
            call = source.started[attempt.told]
            self._start(call.name, call.id)
            attempt.told, attempt.sent = attempt.told + 1, call.begin

    def _start(self, name: str, id: str) -> None:
        """Tell that a call begins. An id that the grammar has written is that of every call, and so of none."""
        self._called = True
        known = id if not self._certain else ""
        self._made.append(CallStart(known or f"call_{secrets.token_hex(12)}", name))

    def _give(self, text: str) -> None:
        if not text or (self._certain and self._called):  # by the grammar a mark that was cut short
            return
        if self._kind is Text:
            text = "\n" + text if self._line else text
            self._line, self._answered = False, True
        else:
            text = text if self._begun or not self._thought else "\n" + text  # one line between two thoughts
            self._thought = True
        self._begun = True
        self._made.append(self._event(text, self._kind))

    def _settle(self) -> None:
        """Give tokens on that brought no text."""
        if self._tokens:
            self._made.append(self._event("", self._last))

    def _event(self, text: str, kind: type[Text] | type[Thought] | type[Arguments]) -> Event:
        self._last = kind
        event = kind(text, tuple(self._tokens), tuple(self._logprobs))
        self._tokens.clear()
        self._logprobs.clear()
        return event


class _Attempt:
    """A head or a call that is being read. kept: how much of the text has been read for good."""

    __slots__ = ("kept", "mark", "reading", "sent", "settled", "source", "space", "told")

    def __init__(self, mark: str, space: str) -> None:
        self.mark, self.space = mark, space  # the mark that began it, and the white space before
        self.source = Source()
        self.reading: Generator[None, None, None]
        self.kept = 0
        self.told = 0  # calls of the source that were told, from their beginning on
        self.settled = 0  # of those, the ones whose end was
        self.sent = 0  # up to where the arguments of the last were


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
