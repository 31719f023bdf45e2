"""AnswerState: what chooses the tokens of one answer, and what tells them to its reader.

It knows nothing of pages and steps, and has no tokens: those are the sequence's (sequence.py), which hands over what is
needed of them. Made by the caller's thread, then owned by the engine thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from woolly.engine.grammar.constrain import Matcher
from woolly.engine.likelihoods import Likelihoods, LogprobOptions
from woolly.engine.sampling.dry import Breaks, dry
from woolly.engine.sampling.infill import infill
from woolly.engine.sampling.stages import (
    Logits,
    Mask,
    Surprise,
    bias,
    candidates,
    counts_tokens,
    edits_logits,
    last,
    native_values,
    penalties,
    pick,
)
from woolly.engine.stream import Stream
from woolly.request import End, Reason, Sampling, Text, Timings, Usage
from woolly.text import TextStream

MOST_LIKELY = Sampling(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Resumed:
    """An answer that was begun elsewhere: its tokens, and how many pieces of its text its reader has."""

    tokens: tuple[int, ...]
    pieces: int


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How an answer is made.

    ends: ids that end it. text: turns tokens into text and finds stop texts; without it the events carry ids alone.
    spell: the bytes of a token. matcher: of the answer's format. logprobs: what is told of likelihoods, if anything.
    """

    sampling: Sampling = MOST_LIKELY
    seed: int = 0
    ends: frozenset[int] = frozenset()
    text: TextStream | None = None
    spell: Callable[[int], bytes] = lambda _: b""
    matcher: Matcher | None = None
    logprobs: LogprobOptions | None = None
    resumed: Resumed | None = None


GREEDY = AnswerOptions()


class AnswerState:
    """stream: to its reader, from the moment on when the engine has the answer."""

    __slots__ = (
        "_filling",
        "_pending",
        "_surprise",
        "added_s",
        "breaks",
        "counts",
        "edits",
        "ends",
        "first_s",
        "last_s",
        "likelihoods",
        "matcher",
        "native_values",
        "over",
        "pieces",
        "plain",
        "sampling",
        "seed",
        "started_s",
        "stream",
        "text",
    )

    def __init__(self, options: AnswerOptions) -> None:
        sampling, logprobs = options.sampling, options.logprobs
        self.sampling = sampling
        self.seed = options.seed
        post_sampling = logprobs is not None and logprobs.post_sampling
        self.native_values = None if post_sampling else native_values(sampling)  # None: its tokens are picked in NumPy
        self.edits = edits_logits(sampling)
        self.plain = not self.edits and logprobs is None  # `prepare` has nothing to do
        self.counts: dict[int, int] | None = {} if counts_tokens(sampling) else None  # of the answer's tokens
        self.breaks = Breaks(sampling.dry_sequence_breakers, options.spell) if sampling.dry_multiplier else None
        self._surprise: Surprise = {}
        self._filling = partial(infill, ends=options.ends, spell=options.spell) if sampling.infill else None

        self.ends = options.ends
        self.text = options.text
        self.matcher = options.matcher
        self.likelihoods = Likelihoods(logprobs, options.spell) if logprobs is not None else None
        self.stream: Stream
        self._pending: list[int] = []  # tokens whose text has not been sent yet
        self.pieces = options.resumed.pieces if options.resumed is not None else 0  # that the reader has already
        self.over: Reason | None = None  # why the resumed tokens end the answer, if they do

        self.added_s = perf_counter()
        self.started_s = 0.0
        self.first_s = 0.0
        self.last_s = 0.0  # when its last token came

    def prepare(self, logits: Logits, words: list[int], ahead: list[int]) -> None:
        """Edit the logits of a token to be chosen, in place: the one after the known words and those of a draft.

        Once a token, in order, before any is chosen.
        """
        if self.likelihoods is not None:
            prompt = self.likelihoods.prompt(words[0])
            if prompt is not None:
                self.stream.put(prompt)
            self.likelihoods.begin(logits, ahead=bool(ahead))
        if self.edits:
            s, counts = self.sampling, self.counts or {}
            if ahead and self.counts is not None:
                counts = dict(counts)
                for token in ahead:
                    counts[token] = counts.get(token, 0) + 1
            penalties(logits, last(words + ahead if ahead else words, s.repeat_last_n), counts, s)
            if self.breaks is not None:
                dry(logits, words, self.breaks.of(words), s)
            bias(logits, s)

    def pick(self, logits: Logits, position: int, mask: Mask | None = None) -> int:
        """The token to be chosen for a position, by NumPy, or NO_TOKEN. In order, where a draft has several."""
        sampling, seed, filling = self.sampling, self.seed, self._filling
        if self.likelihoods is not None and self.likelihoods.post_sampling:
            left = candidates(logits, sampling, seed=seed, position=position, mask=mask, filling=filling)
            self.likelihoods.sampled(left, len(logits))
        return pick(logits, sampling, seed=seed, position=position, mask=mask, surprise=self._surprise, filling=filling)

    def accept(self, token: int, now: float) -> Reason | None:
        """Take a token, send the text it completes, and tell why it ends the answer, if it does. Once a token."""
        self._pending.append(token)
        if self.first_s == 0.0:
            self.first_s = now
        if self.counts is not None:
            self.counts[token] = self.counts.get(token, 0) + 1
        if self.likelihoods is not None:
            self.likelihoods.choose(token, ends=token in self.ends)
        if token in self.ends:
            return "stop"
        if self.matcher is not None:
            self.matcher.take(token)
        if self.text is None:
            self._send("")
        else:
            piece = self.text.feed(token)
            if piece:
                self._send(piece)
            if self.text.stopped:
                return "stop"
        return "stop" if self.matcher is not None and self.matcher.complete else None

    def end(self, reason: Reason, now: float, usage: Usage, *, drafted: int, accepted: int) -> None:
        """Send what was held back, and the last event."""
        if reason != "cancelled":
            rest = self.text.flush() if self.text is not None else ""
            if rest or self._pending:
                self._send(rest)
        started, first, answer = self.started_s or now, self.first_s or now, usage.completion_tokens
        prompt_s, answer_s = first - started, now - first
        computed = usage.prompt_tokens - usage.cached_tokens
        timings = Timings(
            waited_s=started - self.added_s,
            prompt_s=prompt_s,
            answer_s=answer_s,
            prompt_rate=computed / prompt_s if answer and prompt_s > 0 else 0.0,
            answer_rate=(answer - 1) / answer_s if answer > 1 and answer_s > 0 else 0.0,
            drafted=drafted,
            accepted=accepted,
        )
        stopped_by = self.text.stopped_by if reason == "stop" and self.text is not None else ""
        likely = self.likelihoods.end if self.likelihoods is not None else None
        self.stream.put(End(reason, usage, timings, self.seed, stopped_by, likely))

    def _send(self, text: str) -> None:
        likely = self.likelihoods.take() if self.likelihoods is not None else ()
        if self.pieces:
            self.pieces -= 1
        else:
            self.stream.put(Text(text, tuple(self._pending), likely))
        self._pending.clear()
