"""Counters of a server since its start, for each model and for all together. Owned by the event loop.

They are plain numbers that change once an answer, never once a token, and are read when figures are asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from woolly.request import End

RECENT = 1000
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


class Histogram:
    """How many values lie between two borders, and how many beyond the last border."""

    __slots__ = ("borders", "counts", "total")

    def __init__(self, borders: Sequence[float] = SECONDS) -> None:
        self.borders = borders
        self.counts = [0] * (len(borders) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.borders, value)] += 1
        self.total += value


@dataclass(slots=True)
class ModelCounts:
    """The counters of one model. They stay when it is unloaded."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prompt_s: float = 0.0  # from the first steps of prompts to the first tokens of their answers
    answer_s: float = 0.0  # from there to the ends
    longest: int = 0  # the most tokens of a prompt and its answer
    reasons: Counter[str] = field(default_factory=Counter)  # why answers ended
    first_text: Histogram = field(default_factory=Histogram)  # from the request to its first piece of text
    end_to_end: Histogram = field(default_factory=Histogram)  # from the request to the end of the answer
    queue: Histogram = field(default_factory=Histogram)  # in the engine's queue


@dataclass(slots=True)
class Counts:
    done: int = 0
    failed: int = 0
    active: int = 0
    firsts: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))  # seconds to the first piece of text
    totals: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))  # seconds of whole answers
    statuses: Counter[int] = field(default_factory=Counter)  # of all responses; 499 is a client that went away
    models: dict[str, ModelCounts] = field(default_factory=dict)

    def of(self, model: str) -> ModelCounts:
        return self.models.setdefault(model, ModelCounts())

    def first(self, model: str, seconds: float) -> None:
        """Count the first piece of an answer, so many seconds after its request."""
        self.firsts.append(seconds)
        self.of(model).first_text.add(seconds)

    def add(self, model: str, end: End, seconds: float) -> None:
        """Count a whole answer, so many seconds after its request."""
        self.totals.append(seconds)
        one = self.of(model)
        one.prompt_tokens += end.usage.prompt_tokens
        one.cached_tokens += end.usage.cached_tokens
        one.completion_tokens += end.usage.completion_tokens
        one.prompt_s += end.timings.prompt_s
        one.answer_s += end.timings.answer_s
        one.longest = max(one.longest, end.usage.total_tokens)
        one.reasons[end.reason] += 1
        one.end_to_end.add(seconds)
        one.queue.add(end.timings.waited_s)

    @property
    def prompt_tokens(self) -> int:
        return sum(one.prompt_tokens for one in self.models.values())

    @property
    def cached_tokens(self) -> int:
        return sum(one.cached_tokens for one in self.models.values())
