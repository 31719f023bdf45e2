"""Splits the text of an answer into thoughts, text and calls of tools.

What holds:
- However the text is cut into events, the joined thoughts, text and calls are the same.
- Only marks, heads and the white space beside them are dropped. A mark out of place is text, a call that cannot be
  read is text, and a thought that never ends is a thought to the end. All tokens and likelihoods reach the caller, in
  order: those of dropped characters in events without text, unless a token has other characters, too.
- Text is held back only while it may be part of a mark or of a call, or the white space before one.
- A call within a thought counts only if nothing but its end follows: models draft calls while they think.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Iterable
from dataclasses import replace

from woolly.request import Arguments, CallStart, End, Event, Failed, Logprob, Piece, Text, Thought
from woolly.request.messages import Tool
from woolly.text.output.calls import ParsedCall
from woolly.text.output.heads import Head
from woolly.text.output.output import Output
from woolly.text.output.style import AnswerPart, Kind
from woolly.text.output.values import Broken, Cut, Reading, Source


class OutputReader:
    """Reads one answer, event by event. opened: the prompt ends in this part. tools: what may be called.

    certain: calls follow a grammar, so their arguments are sent while they are written; else a call is sent when it is
    complete, because an event that was sent cannot become text again.
    """

    def __init__(
        self, output: Output, opened: AnswerPart | None = None, tools: Iterable[Tool] = (), *, certain: bool = False
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
        self._marked = opened is not None  # a mark was read: the white space after it is dropped
        self._begun = False  # there is text of this thought, or, outside of thoughts, of the answer
        self._answered = False  # there is text of the answer
        self._thought = False  # there is text of a thought
        self._line = False  # the next text begins on a line of its own
        self._called = False
        self._last: type[Piece] = self._kind  # of events without text
        self._pending = ""
        self._ended = False
        self._tokens: list[int] = []  # tokens not yet handed to the caller
        self._logprobs: list[Logprob] = []
        self._events: list[Event] = []
        self._attempt: _Attempt | None = None
        if self._heads and not opened:
            self._begin("", "")

    def feed(self, event: Event) -> list[Event]:
        """The events that no later text of the answer can change."""
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
            self._events.append(event)
        events, self._events = self._events, []
        return events

    def _read(self) -> None:
        while True:
            if self._attempt is not None:
                if not self._advance(self._attempt):
                    return
                continue
            if self._marked and not self._begun:
                self._pending = self._pending.lstrip()
            first, anywhere = self._counting()
            position = _find(self._pending, first, anywhere)
            if position is None:
                break
            at, mark = position
            before, self._pending = self._pending[:at], self._pending[at:]
            stripped = before.rstrip()
            if self._opens(mark):
                self._give(stripped)
                self._begin(mark, before[len(stripped) :])
                continue
            self._pending = self._pending[len(mark) :]
            if self._is_text(mark, self._begun or bool(stripped)):
                self._give(before + mark)
            else:
                self._give(stripped)
                self._pass(mark)
        cut = _certain(self._pending, first, anywhere)
        sure, self._pending = self._pending[:cut], self._pending[cut:]
        self._give(sure)

    def _counting(self) -> tuple[frozenset[str], frozenset[str]]:
        """The marks that have a meaning now: those that must come first, and those that may come anywhere."""
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
        """Whether a mark is ordinary text here. At the beginning of a part such a mark is a repetition, and dropped."""
        if opens := self._parts.get(mark):
            return begun and opens.kind is Thought and self._kind is Thought
        return begun and mark not in self._ignored and not (self._part and mark == self._part.closing)

    def _pass(self, mark: str) -> None:
        """Enter or leave a part."""
        self._marked = True
        opens = self._parts.get(mark)
        if opens or self._heads or (self._part and mark == self._part.closing):
            self._enter(opens.kind if opens else Text, opens)

    def _enter(self, kind: Kind, part: AnswerPart | None = None) -> None:
        self._part = part
        if self._kind is Thought and kind is Text:
            self._settle()
        self._kind = self._last = kind
        self._begun = self._answered and kind is Text

    # Heads and calls are read by generators over the pending text. The mark of an attempt that fails becomes text.

    def _begin(self, mark: str, space: str) -> None:
        attempt = self._attempt = _Attempt(mark, space)
        if self._heads:
            attempt.reading = self._head(attempt)
        else:
            attempt.reading = self._draft(attempt) if self._kind is Thought else self._run(attempt)

    def _advance(self, attempt: _Attempt) -> bool:
        """Continue an attempt; True when it has ended."""
        source = attempt.source
        source.text, source.ended = self._pending, self._ended
        try:
            next(attempt.reading)
        except StopIteration:
            self._pending = source.text[attempt.consumed :]
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
        """Read a head, and the call after a head that names a tool."""
        assert self._heads is not None
        source = attempt.source
        head: Head = yield from self._heads.read(source, self._tools, not attempt.mark)
        attempt.consumed, calls = source.at, None
        if head.tool and self._calls:
            try:
                calls = yield from self._one(attempt, "", head.tool)
            except (Broken, Cut):
                if self._heads.plain:
                    raise
        self._marked = True
        self._enter(head.kind)
        self._line = self._answered and head.kind is Text
        if calls is not None:
            self._tell(attempt, calls)
            yield from self._closings(attempt)

    def _run(self, attempt: _Attempt) -> Reading[None]:
        """Read calls that follow each other."""
        calls = yield from self._one(attempt, attempt.mark)
        while True:
            self._tell(attempt, calls)
            try:
                yield from self._closings(attempt)
                mark = yield from self._next(attempt)
                if mark is None:
                    return
                calls = yield from self._one(attempt, mark)
            except (Broken, Cut):
                return

    def _draft(self, attempt: _Attempt) -> Reading[None]:
        """Read calls in a thought, which count only if the answer ends with them."""
        source, calls = attempt.source, list[ParsedCall]()
        mark: str | None = attempt.mark
        while mark is not None:
            calls += yield from self._one(attempt, mark)
            yield from self._closings(attempt)
            mark = yield from self._next(attempt)
        yield from source.space()
        if self._part:
            yield from source.take(self._part.closing)
        yield from source.space()
        if (yield from source.peek()):
            raise Broken
        self._tell(attempt, calls)

    def _one(self, attempt: _Attempt, mark: str, name: str = "") -> Reading[list[ParsedCall]]:
        """Read what a mark opens: a call, or a list of them. No mark: the next call begins where the last one ended."""
        calls, source = self._calls, attempt.source
        assert calls is not None
        known = mark in calls.first or (calls.known and not attempt.consumed and mark not in calls.sections)
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
            if attempt.announced == attempt.settled:
                raise
            source.at = len(source.text)  # its beginning was sent as a call, and cannot become text
            return []

    def _closings(self, attempt: _Attempt) -> Reading[None]:
        """Read the marks that end a call, and surplus brackets before one."""
        calls, source = self._calls, attempt.source
        assert calls is not None
        while True:
            attempt.consumed = source.at
            yield from source.space("}])" if calls.joined else "")
            if not (yield from source.take(*calls.closings)):
                source.at = attempt.consumed
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
        source.at = attempt.consumed
        return None

    def _tell(self, attempt: _Attempt, calls: list[ParsedCall]) -> None:
        """Emit calls that have been read; of those whose beginning was emitted already, the rest."""
        if self._certain:
            self._progress(attempt)
        if attempt.announced == attempt.settled:
            for call in calls:
                self._start(call.name, call.id)
                self._events.append(self._event(call.text, Arguments))
        attempt.consumed, attempt.settled = attempt.source.at, attempt.announced
        self._marked = True

    def _progress(self, attempt: _Attempt) -> None:
        """Emit as much as is known of calls that are still being written."""
        source = attempt.source
        while attempt.announced <= len(source.started):
            if attempt.announced:
                call = source.started[attempt.announced - 1]
                end = source.at if call.end is None else call.end
                if attempt.sent < end:
                    self._events.append(self._event(source.text[attempt.sent : end], Arguments))
                    attempt.sent = end
                if call.end is None:
                    return
            if attempt.announced == len(source.started):
                return
            call = source.started[attempt.announced]
            self._start(call.name, call.id)
            attempt.announced, attempt.sent = attempt.announced + 1, call.begin

    def _start(self, name: str, id: str) -> None:
        """Emit the beginning of a call. An id that a grammar wrote is not unique: a random one takes its place."""
        self._called = True
        known = id if not self._certain else ""
        self._events.append(CallStart(known or f"call_{secrets.token_hex(12)}", name))

    def _give(self, text: str) -> None:
        if not text or (self._certain and self._called):  # after a call by a grammar only the rest of a mark can come
            return
        if self._kind is Text:
            text = "\n" + text if self._line else text
            self._line, self._answered = False, True
        else:
            text = text if self._begun or not self._thought else "\n" + text  # one line between two thoughts
            self._thought = True
        self._begun = True
        self._events.append(self._event(text, self._kind))

    def _settle(self) -> None:
        """Emit the tokens that brought no text."""
        if self._tokens:
            self._events.append(self._event("", self._last))

    def _event(self, text: str, kind: type[Piece]) -> Event:
        self._last = kind
        event = kind(text, tuple(self._tokens), tuple(self._logprobs))
        self._tokens.clear()
        self._logprobs.clear()
        return event


class _Attempt:
    """A head or a call that is being read. consumed: characters that cannot become text any more."""

    __slots__ = ("announced", "consumed", "mark", "reading", "sent", "settled", "source", "space")

    def __init__(self, mark: str, space: str) -> None:
        self.mark, self.space = mark, space  # the mark that began it, and the white space before
        self.source = Source()
        self.reading: Generator[None, None, None]
        self.consumed = 0
        self.announced = 0  # calls of the source whose beginning was emitted
        self.settled = 0  # of those, the ones whose end was emitted
        self.sent = 0  # where the emitted arguments of the last one end


def _find(text: str, first: Iterable[str], anywhere: Iterable[str]) -> tuple[int, str] | None:
    """Where the leftmost mark begins, and which it is."""
    begin = len(text) - len(text.lstrip())
    positions = [(begin, mark) for mark in first if text.startswith(mark, begin)]
    positions += [(at, mark) for mark in anywhere if (at := text.find(mark)) >= 0]
    return min(positions, default=None)


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
