"""Sequence: one text in the making. What is known, how much of it is computed, and who listens.

`tokens` only grows; the first `prompt` of them were given. `computed` of them have their state, in the first `held`
pages of `table`. A step computes some of the missing ones; when none is missing, the logits of the last give one
token more.

Made by the caller's thread, then owned by the engine thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from woolly.engine.sampling import REPEAT_WINDOW, Logits, Pick, bias, penalties
from woolly.engine.stream import Stream
from woolly.errors import WoollyError
from woolly.request import End, Failed, Logprob, Prompt, Reason, Sampling, Start, Text, Timings, Usage
from woolly.text import TextStream

GREEDY = Sampling(temperature=0.0)


class Sequence:
    """A prompt and its answer, or, with `scores`, tokens whose logits are asked for, all of them.

    limit: the most tokens it may come to. ends: ids that end it. text: turns tokens into text and finds stop texts;
    without it the events carry ids alone. scores: float32 [tokens, vocab], filled by the engine. prompt_logprobs: tell
    how likely the prompt's tokens were, before the answer begins.

    Of the first `every` tokens each row's logits are wanted, and `told` of them have been given; of all others only the
    last known token's are.
    """

    __slots__ = (
        "_edits",
        "_heard",
        "_likely",
        "_options",
        "_pending",
        "_spell",
        "added_s",
        "cached",
        "chain",
        "computed",
        "counts",
        "ends",
        "every",
        "first_s",
        "held",
        "last_s",
        "limit",
        "logprobs",
        "prompt",
        "remembered",
        "salt",
        "sampling",
        "scores",
        "started_s",
        "stream",
        "table",
        "text",
        "tokens",
        "told",
    )

    def __init__(
        self,
        tokens: Iterable[int],
        *,
        limit: int,
        page: int,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        ends: frozenset[int] = frozenset(),
        text: TextStream | None = None,
        salt: bytes = b"",
        scores: Logits | None = None,
        logprobs: int | None = None,
        prompt_logprobs: bool = False,
        spell: Callable[[int], bytes] = lambda _: b"",
    ) -> None:
        self.tokens: list[int] = list(tokens)
        self.prompt = len(self.tokens)
        self.limit = limit
        self.ends = ends
        self.text = text
        self.salt = salt
        self.scores = scores
        self.logprobs = logprobs
        self.every = self.prompt if scores is not None else self.prompt - 1 if prompt_logprobs else 0
        self.told = 0
        self._spell = spell
        self._heard: list[Logprob] | None = [] if prompt_logprobs else None  # of the prompt's tokens
        self._likely: list[Logprob] = []  # of the tokens whose text has not been sent yet
        self.sampling = sampling
        self._options: Mapping[str, Any] = {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "seed": seed,
        }
        counting = sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0
        self.counts: dict[int, int] | None = {} if counting else None  # of the answer's tokens
        self._edits = counting or sampling.repetition_penalty != 1.0 or bool(sampling.logit_bias)

        self.computed = 0
        self.table: NDArray[np.int32] = np.zeros(-(-limit // page), np.int32)
        self.held = 0  # pages in the table
        self.remembered = 0  # of those, the ones that have been named
        self.chain: list[bytes] = []  # digests of the whole pages, kept by Pages

        self.cached = 0
        self._pending: list[int] = []  # tokens whose text has not been sent yet
        self.added_s = perf_counter()
        self.started_s = 0.0
        self.first_s = 0.0
        self.last_s = 0.0  # when its last token came
        self.stream: Stream

    @property
    def seed(self) -> int:
        seed: int = self._options["seed"]
        return seed

    def start(self, now: float) -> None:
        """Its first step begins; `computed` is what remembered pages hold. Once."""
        self.started_s = now
        self.cached = self.computed
        self.stream.put(Start(self.prompt, self.cached))

    def wanted(self, count: int) -> range:
        """The places among the next `count` tokens whose logits are wanted for their own sake. Once a step."""
        return range(max(self.computed, self.told), max(min(self.computed + count, self.every), self.told))

    def hear(self, first: int, logits: Logits) -> None:
        """Take the logits of the tokens from `first` on, which are all wanted. In order, each once."""
        self.told = first + len(logits)
        if self.scores is not None:
            self.scores[first : self.told] = logits
        elif self._heard is not None:
            for row, token in zip(logits, self.tokens[first + 1 : self.told + 1], strict=True):
                self._heard.append(_logprob(row.astype(np.float64), token, self.logprobs or 0, self._spell))

    def choose(self, logits: Logits, pick: Pick) -> int:
        """The next token by the logits of the last, or NOT_FINITE. Once a token; changes the logits."""
        if self._heard is not None:
            first = self.tokens[0]
            self.stream.put(Prompt((first, self._spell(first)), tuple(self._heard)))
            self._heard = None
        if self.logprobs is None:
            return self._choose(logits, pick)
        raw = logits.astype(np.float64)
        token = self._choose(logits, pick)
        if token >= 0 and token not in self.ends:
            self._likely.append(_logprob(raw, token, self.logprobs, self._spell))
        return token

    def _choose(self, logits: Logits, pick: Pick) -> int:
        if self._edits:
            penalties(logits, self.tokens[-REPEAT_WINDOW:], self.counts or {}, self.sampling)
            bias(logits, self.sampling)
        return pick(logits, position=len(self.tokens), **self._options)

    def accept(self, token: int, now: float) -> Reason | None:
        """Take a token, send the text it completes, and tell why the answer ends, if it does. Once a token."""
        self.tokens.append(token)
        self._pending.append(token)
        if self.first_s == 0.0:
            self.first_s = now
        if self.counts is not None:
            self.counts[token] = self.counts.get(token, 0) + 1
        if token in self.ends:
            return "stop"
        if self.text is None:
            self._send("")
        else:
            piece = self.text.feed(token)
            if piece:
                self._send(piece)
            if self.text.stopped:
                return "stop"
        return "length" if len(self.tokens) >= self.limit else None

    def end(self, reason: Reason, now: float) -> None:
        """Send what was held back, and the last event."""
        if reason != "cancelled":
            rest = self.text.flush() if self.text is not None else ""
            if rest or self._pending:
                self._send(rest)
        answer = len(self.tokens) - self.prompt
        usage = Usage(prompt_tokens=self.prompt, cached_tokens=self.cached, completion_tokens=answer)
        started, first = self.started_s or now, self.first_s or now
        prompt_s, answer_s = first - started, now - first
        timings = Timings(
            waited_s=started - self.added_s,
            prompt_s=prompt_s,
            answer_s=answer_s,
            prompt_rate=(self.prompt - self.cached) / prompt_s if answer and prompt_s > 0 else 0.0,
            answer_rate=(answer - 1) / answer_s if answer > 1 and answer_s > 0 else 0.0,
        )
        self.stream.put(End(reason, usage, timings, self.seed))

    def fail(self, error: WoollyError) -> None:
        self.stream.put(Failed(error))

    def _send(self, text: str) -> None:
        self.stream.put(Text(text, tuple(self._pending), tuple(self._likely)))
        self._pending.clear()
        self._likely.clear()


def _logprob(raw: NDArray[np.float64], token: int, count: int, spell: Callable[[int], bytes]) -> Logprob:
    """The logarithm of the token's probability and of the likeliest; ties go to the lower id."""
    best = raw.max()
    total = float(best + np.log(np.exp(raw - best).sum()))
    count = min(count, len(raw))
    near = np.flatnonzero(raw >= np.partition(raw, -count)[-count]) if count else np.empty(0, np.int64)
    top = near[np.lexsort((near, -raw[near]))][:count].tolist()
    return Logprob(
        token, spell(token), float(raw[token]) - total, tuple((id_, spell(id_), float(raw[id_]) - total) for id_ in top)
    )
