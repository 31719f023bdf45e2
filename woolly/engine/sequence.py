"""Sequence: one text in the making. Its known tokens, how many of them are computed, and the stream to its reader.

`tokens` only grows; the first `prompt` of them were given. `computed` of them have their state, in the first
`page_count` pages of `table`. A step computes some of the missing ones; when none is missing, the output of the last
gives one token more.

Behind the known tokens a step may compute a `draft`, which is no part of them (draft.py).

The outputs of all positions from `wanted` on are wanted: of an answer only that of its last known token, of a text that
is scored all. A position's output is given once, though its state may be computed again.

An answer may have been begun elsewhere: it is `resumed` from its tokens, and its reader has the first `pieces` of its
text. The tokens are taken as if they had been chosen here, and what the reader has is not sent again. The rest is as if
one sequence had made all of it.

Made by the caller's thread, then owned by the engine thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from woolly.engine.grammar.constrain import Matcher
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
from woolly.engine.speculation.lookup import Chance, Lookup
from woolly.engine.stream import Stream
from woolly.engine.work_clock import worked_s
from woolly.errors import RequestError, WoollyError
from woolly.limits import LIMITS
from woolly.request import End, Failed, Logprob, Prompt, Reason, Sampling, Start, Text, Timings, Usage
from woolly.text import TextStream

GREEDY = Sampling(temperature=0.0)
MOST_MISSING = 16  # tokens of an answer that is decoded; one that misses more is restored as a prompt is


class Sequence:
    """A prompt and its answer, or, with `scores`, tokens whose output is asked for: logits of all, or an embedding.

    limit: the most tokens it may come to. ends: ids that end it. text: turns tokens into text and finds stop texts;
    without it the events carry ids alone. key: whose it is, for fair shares. protect_s: for so long after its end
    others' pages are forgotten before its own. lora: scales of the model's adapters, if it has any of them. scores:
    float32, a row for each of the last tokens (all of them, or one alone), filled by the engine with their output.
    output: the name of that output; None: the model's first. prompt_logprobs: tell how likely the prompt's tokens were,
    before the answer begins. post_sampling: tell how likely tokens were among those that the sampling left. matcher: of
    the answer's format. resumed, pieces: of an answer that was begun elsewhere.
    """

    __slots__ = (
        "_end_logprob",
        "_filling",
        "_logprobs",
        "_pending",
        "_pieces",
        "_prompt_logprobs",
        "_raw",
        "_spell",
        "_surprise",
        "accepted",
        "added_s",
        "begins",
        "breaks",
        "cached",
        "chain",
        "chance",
        "computed",
        "counts",
        "disk",
        "draft",
        "drafted",
        "drafts",
        "due",
        "edits",
        "ends",
        "first_s",
        "in_memory",
        "key",
        "last_s",
        "limit",
        "logprobs",
        "lookup",
        "lora",
        "matcher",
        "native_values",
        "output",
        "over",
        "page_count",
        "plain",
        "post_sampling",
        "prompt",
        "protect_s",
        "remembered",
        "salt",
        "sampling",
        "scores",
        "seed",
        "slot",
        "started_s",
        "stream",
        "table",
        "table_version",
        "text",
        "tokens",
        "wanted",
    )

    def __init__(
        self,
        tokens: Iterable[int],
        *,
        limit: int,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        ends: frozenset[int] = frozenset(),
        text: TextStream | None = None,
        salt: bytes = b"",
        key: str = "",
        protect_s: float = 0.0,
        lora: Logits | None = None,
        scores: Logits | None = None,
        output: str | None = None,
        logprobs: int | None = None,
        prompt_logprobs: bool = False,
        post_sampling: bool = False,
        matcher: Matcher | None = None,
        spell: Callable[[int], bytes] = lambda _: b"",
        resumed: Several[int] = (),
        pieces: int = 0,
    ) -> None:
        self.tokens: list[int] = list(tokens)
        self.prompt = len(self.tokens)
        self.limit = limit
        self.ends = ends
        self.text = text
        self.salt = salt
        self.key = key
        self.protect_s = protect_s
        self.due = 0  # its turn among the prompts of its key, kept by Shares
        self.lora = lora
        self.scores = scores
        self.output = output
        self.logprobs = logprobs
        self.matcher = matcher
        self.wanted = 0 if prompt_logprobs else self.prompt - (1 if scores is None else len(scores))
        self._spell = spell
        self._prompt_logprobs: list[Logprob] | None = [] if prompt_logprobs else None
        self._end_logprob: Logprob | None = None
        self._logprobs: list[Logprob] = []  # of the tokens whose text has not been sent yet
        self._raw: list[NDArray[np.float64]] = []  # the logits of the tokens to be chosen, before or after the sampling
        self.sampling = sampling
        self.seed = seed
        self.post_sampling = post_sampling
        self.native_values = None if post_sampling else native_values(sampling)  # None: its tokens are picked in NumPy
        self.edits = edits_logits(sampling)
        self.plain = not self.edits and logprobs is None and not prompt_logprobs  # `prepare` has nothing to do
        self.counts: dict[int, int] | None = {} if counts_tokens(sampling) else None  # of the answer's tokens
        self.breaks = Breaks(sampling.dry_sequence_breakers, spell) if sampling.dry_multiplier else None
        self._surprise: Surprise = {}
        self._filling = partial(infill, ends=ends, spell=spell) if sampling.infill else None

        self.computed = 0
        self.table: NDArray[np.int32] | None = None  # [groups, pages], made by Pages
        self.table_version = 0  # counts its changes
        self.begins: list[int] = []  # the first page that is held, by group; those before it are behind the window
        self.page_count = 0  # pages in the table
        self.remembered = 0  # of those, the ones that have been named
        self.slot = -1  # the slot of the state that it carries; -1: none
        self.chain: list[bytes] = []  # digests of the whole pages, kept by Pages

        # Whether its next tokens may be guessed. DRY reads a text that only grows, and forbids what a guess would find.
        self.drafts = scores is None and self.breaks is None
        self.draft: list[int] = []  # the guess at the next tokens that is computed now
        self.lookup: Lookup | None = None  # repetitions in this text, kept by Drafts
        self.chance: Chance | None = None  # how often guesses of the draft's kind were right
        self.drafted = self.accepted = 0  # tokens of all drafts, and those that were right

        self.cached = 0
        self.in_memory: int | None = None  # pages that it could have begun with when others were read from the disk
        self.disk = 0  # positions that it began with because of pages read from the disk
        self._pending: list[int] = []  # tokens whose text has not been sent yet
        self.added_s = perf_counter()
        self.started_s = 0.0
        self.first_s = 0.0
        self.last_s = 0.0  # when its last token came
        self.stream: Stream
        self._pieces = pieces  # pieces of text that the reader has already
        self.over: Reason | None = None  # why the resumed tokens end the answer, if they do
        if resumed:
            self._resume(resumed)

    @property
    def answers(self) -> bool:
        """Whether the answer has begun, and a few rows bring its next token."""
        known = len(self.tokens)
        return known > self.prompt and known - self.computed <= MOST_MISSING

    def start(self, now: float) -> None:
        """Its first step begins; `computed` is what remembered pages hold. Once."""
        self.started_s = now
        self.cached = min(self.computed, self.prompt)
        self.stream.put(Start(self.prompt, self.cached, self.disk))

    def score(self, first: int, logits: Logits) -> None:
        """Take the logits of the known tokens from `first` on, whose next token is known too. In order, each once."""
        if self.scores is not None:
            first -= self.prompt - len(self.scores)
            self.scores[first : first + len(logits)] = logits
        elif self._prompt_logprobs is not None:
            following = self.tokens[first + 1 : first + 1 + len(logits)]
            for row, token in zip(logits, following, strict=True):
                self._prompt_logprobs.append(self._logprob(row.astype(np.float64), token))

    def prepare(self, logits: Logits, offset: int = 0) -> None:
        """Edit the logits of a token to be chosen, in place: the next one, or one behind so many tokens of the draft.

        Once a token, in order, before any is chosen.
        """
        if self._prompt_logprobs is not None:
            first = self.tokens[0]
            self.stream.put(Prompt((first, self._spell(first)), tuple(self._prompt_logprobs)))
            self._prompt_logprobs = None
        if self.logprobs is not None:
            if not offset:
                self._raw.clear()
            if not self.post_sampling:
                self._raw.append(logits.astype(np.float64))
        if self.edits:
            s, ahead, counts = self.sampling, self.draft[:offset], self.counts or {}
            if ahead and self.counts is not None:
                counts = dict(counts)
                for token in ahead:
                    counts[token] = counts.get(token, 0) + 1
            penalties(logits, last(self.tokens + ahead if ahead else self.tokens, s.repeat_last_n), counts, s)
            if self.breaks is not None:
                dry(logits, self.tokens, self.breaks.of(self.tokens), s)
            bias(logits, s)

    def pick(self, logits: Logits, position: int, mask: Mask | None = None) -> int:
        """The token to be chosen for a position, by NumPy, or NO_TOKEN. In order, where a draft has several."""
        if self.post_sampling:
            left = candidates(
                logits, self.sampling, seed=self.seed, position=position, mask=mask, filling=self._filling
            )
            self._raw.append(np.full(len(logits), -np.inf))
            self._raw[-1][left.ids] = left.logits
        return pick(
            logits,
            self.sampling,
            seed=self.seed,
            position=position,
            mask=mask,
            surprise=self._surprise,
            filling=self._filling,
        )

    def accept(self, token: int, now: float) -> Reason | None:
        """Take a token, send the text it completes, and tell why the answer ends, if it does. Once a token."""
        self.tokens.append(token)
        self._pending.append(token)
        if self.first_s == 0.0:
            self.first_s = now
        if self.counts is not None:
            self.counts[token] = self.counts.get(token, 0) + 1
        likely = self._logprob(self._raw.pop(0), token) if self._raw else None
        if token in self.ends:
            self._end_logprob = likely
            return "stop"
        if self.matcher is not None:
            self.matcher.take(token)
        if likely is not None:
            self._logprobs.append(likely)
        if self.text is None:
            self._send("")
        else:
            piece = self.text.feed(token)
            if piece:
                self._send(piece)
            if self.text.stopped:
                return "stop"
        if self.matcher is not None and self.matcher.complete:
            return "stop"
        return "length" if len(self.tokens) >= self.limit else None

    def _resume(self, tokens: Several[int]) -> None:
        """Go on from an answer that was begun elsewhere: by its tokens alone, without their logits.

        Mirostat learns from the logits of each token, and an end token is told with its likelihood. These are chosen
        once more; they are the same again, and what was sent of them is not sent again.
        """
        if self.sampling.mirostat:
            return
        tokens = tokens[:-1] if tokens[-1] in self.ends else tokens
        pieces, self._pieces = self._pieces, len(tokens)  # nothing is sent now; a token makes one piece at the most
        for index, token in enumerate(tokens):
            if self.over is not None or token in self.ends:
                raise RequestError(f"the answer ends before given[{index}]", param="given")
            self.over = self.accept(token, 0.0)
        self._pieces += pieces - len(tokens)
        if self._pieces < 0:
            raise RequestError(f"given has more pieces of text than the {pieces} that its reader has", param="given")
        self.wanted = len(self.tokens) - 1

    def take_forced(self, now: float) -> Reason | None:
        """Take the tokens that the format leaves no choice of: their logits would not matter, so none are wanted.

        Likelihoods and mirostat need the logits of every token: with these nothing is taken. Called after each `accept`
        that did not end the answer. When finding them takes too long, the rest is drawn by masks in later steps.
        """
        if self.matcher is None or self.logprobs is not None or self.sampling.mirostat:
            return None
        reason: Reason | None = None
        late = worked_s() + LIMITS.mask_s
        for _ in range(MOST_MISSING - 1):
            if reason is not None or worked_s() > late:
                break
            token = self.matcher.forced()
            if token is None:
                break
            reason = self.accept(token, now)
        return reason

    def end(self, reason: Reason, now: float) -> None:
        """Send what was held back, and the last event."""
        if reason != "cancelled":
            rest = self.text.flush() if self.text is not None else ""
            if rest or self._pending:
                self._send(rest)
        answer = len(self.tokens) - self.prompt
        usage = Usage(self.prompt, self.cached, answer, self.disk)
        started, first = self.started_s or now, self.first_s or now
        prompt_s, answer_s = first - started, now - first
        timings = Timings(
            waited_s=started - self.added_s,
            prompt_s=prompt_s,
            answer_s=answer_s,
            prompt_rate=(self.prompt - self.cached) / prompt_s if answer and prompt_s > 0 else 0.0,
            answer_rate=(answer - 1) / answer_s if answer > 1 and answer_s > 0 else 0.0,
            drafted=self.drafted,
            accepted=self.accepted,
        )
        stopped_by = self.text.stopped_by if reason == "stop" and self.text is not None else ""
        self.stream.put(End(reason, usage, timings, self.seed, stopped_by, self._end_logprob))

    def fail(self, error: WoollyError) -> None:
        self.stream.put(Failed(error))

    def _send(self, text: str) -> None:
        if self._pieces:
            self._pieces -= 1
        else:
            self.stream.put(Text(text, tuple(self._pending), tuple(self._logprobs)))
        self._pending.clear()
        self._logprobs.clear()

    def _logprob(self, raw: NDArray[np.float64], token: int) -> Logprob:
        """The logarithm of the token's probability and of the likeliest; ties go to the lower id."""
        best = raw.max()
        total = float(best + np.log(np.exp(raw - best).sum()))
        known = int(np.isfinite(raw).sum()) if self.post_sampling else len(raw)
        count = min(self.logprobs or 0, known)
        near = np.flatnonzero(raw >= np.partition(raw, -count)[-count]) if count else np.empty(0, np.int64)
        top = near[np.lexsort((near, -raw[near]))][:count].tolist()
        likeliest = tuple((other, self._spell(other), float(raw[other]) - total) for other in top)
        return Logprob(token, self._spell(token), float(raw[token]) - total, likeliest)
