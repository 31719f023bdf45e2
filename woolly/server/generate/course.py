"""The course of an answer, as its reader sees it: how far it has come, and whether its time is over."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator

from woolly.request import Arguments, Event, Piece, Start, Text, Thought, Timings, Usage
from woolly.server.dialects.base.timings import Measured

PIECES = (Text, Thought, Arguments)


class Course:
    """answer_s: for so long after its first token an answer goes on for certain, and until it has a whole line."""

    def __init__(self, answer_s: float | None = None) -> None:
        self._answer_s = answer_s
        self._start = Start(0, 0)
        self._tokens = 0
        self._has_line = False
        self._begun_s = self._first_s = self._last_s = 0.0

    def begin(self, start: Start) -> None:
        self._start, self._begun_s = start, time.monotonic()

    def take(self, piece: Piece) -> None:
        """A piece has come. Once a piece."""
        self._last_s = time.monotonic()
        self._first_s = self._first_s or self._last_s
        self._tokens += len(piece.tokens)
        self._has_line = self._has_line or "\n" in piece.text

    @property
    def over(self) -> bool:
        if self._answer_s is None or not self._has_line:
            return False
        return self._last_s - self._first_s > self._answer_s

    def measured(self) -> Measured:
        start, tokens = self._start, self._tokens
        prompt_s, answer_s = self._first_s - self._begun_s, self._last_s - self._first_s
        timings = Timings(
            waited_s=0.0,
            prompt_s=prompt_s,
            answer_s=answer_s,
            prompt_rate=(start.prompt_tokens - start.cached_tokens) / prompt_s if prompt_s > 0 else 0.0,
            answer_rate=(tokens - 1) / answer_s if answer_s > 0 else 0.0,
        )
        return Measured(Usage(start.prompt_tokens, start.cached_tokens, tokens), timings)


async def timed(
    events: AsyncIterator[tuple[int, Event]],
) -> AsyncGenerator[tuple[int, Event | Measured], None]:
    """The events of answers, each piece behind a measure of how far its answer has come with it."""
    courses: dict[int, Course] = defaultdict(Course)
    async for index, event in events:
        if isinstance(event, Start):
            courses[index].begin(event)
        elif isinstance(event, PIECES):
            courses[index].take(event)
            yield index, courses[index].measured()
        yield index, event
