"""Tally: what an engine has counted and timed since it began; plain numbers that any thread may read.

The engine thread alone adds. A step counts as decoding when each of its sequences is an answer that has begun.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from woolly.engine.cache.disk import Counts

RECENT = 1024  # gaps that are kept one by one
GAPS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0)  # upper borders


@dataclass(slots=True)
class Tally:
    steps: int = 0
    sequences: int = 0  # of all steps, each counted once a step
    most_sequences: int = 0  # of one step
    drafted: int = 0  # tokens that were guessed ahead
    accepted: int = 0  # those of them that were right
    decode_steps: int = 0
    decode_tokens: int = 0
    decode_s: float = 0.0
    gap_s: float = 0.0  # between the tokens of a sequence, all together
    gaps: list[int] = field(default_factory=lambda: [0] * (len(GAPS_S) + 1))  # how many up to each border, and beyond
    recent: list[float] = field(default_factory=list)  # the last gaps, in no order
    place: int = 0  # of the oldest of them

    def step(self, sequences: int, tokens: int, seconds: float, *, decoding: bool) -> None:
        """Once a step, which brought so many tokens."""
        self.steps += 1
        self.sequences += sequences
        if sequences > self.most_sequences:
            self.most_sequences = sequences
        if decoding:
            self.decode_steps += 1
            self.decode_tokens += tokens
            self.decode_s += seconds

    def gaps_of(self, tokens: int, seconds: float) -> None:
        """Once a sequence and step. seconds: since the sequence's step before; tokens that come together share them."""
        each = seconds / tokens
        self.gap_s += seconds
        self.gaps[bisect_left(GAPS_S, each)] += tokens
        for _ in range(tokens):
            if len(self.recent) < RECENT:
                self.recent.append(each)
            else:
                self.recent[self.place] = each
                self.place = (self.place + 1) % RECENT

    def snapshot(self) -> Tally:
        """A copy that does not change."""
        return replace(self, gaps=list(self.gaps), recent=list(self.recent))

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            steps=self.steps + other.steps,
            sequences=self.sequences + other.sequences,
            most_sequences=max(self.most_sequences, other.most_sequences),
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            decode_steps=self.decode_steps + other.decode_steps,
            decode_tokens=self.decode_tokens + other.decode_tokens,
            decode_s=self.decode_s + other.decode_s,
            gap_s=self.gap_s + other.gap_s,
            gaps=[mine + theirs for mine, theirs in zip(self.gaps, other.gaps, strict=True)],
            recent=[*self.recent, *other.recent][-RECENT:],
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of an engine at one moment."""

    tally: Tally  # a copy that does not change
    running: int  # sequences
    waiting: int
    pages: int
    pool_bytes: int  # of all pages
    free: int  # pages that hold nothing
    idle: int  # pages that are remembered, and held by no sequence
    evictions: int  # remembered pages that were forgotten for others
    missing: int = 0  # tokens of all sequences whose state is still to be computed
    prompt_rate: float = 0.0  # rows of prompts a second, as measured so far; 0: not yet
    disk: Counts | None = None  # of the disk, where there is one

    @property
    def queued_s(self) -> float:
        """Seconds to compute what is missing, at the measured rate; 0 where none was measured."""
        return self.missing / self.prompt_rate if self.prompt_rate else 0.0
