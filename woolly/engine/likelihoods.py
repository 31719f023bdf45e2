"""Likelihoods: how likely the tokens of one text were, and which were the likeliest beside them, where that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from woolly.engine.sampling.stages import Candidates, Logits
from woolly.request import Logprob, Prompt


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """count: so many of the likeliest are told with each token. of_prompt: the prompt's tokens are told too, before the
    answer begins. post_sampling: likelihoods are those among what the sampling left."""

    count: int
    of_prompt: bool = False
    post_sampling: bool = False


class Likelihoods:
    """Of one answer. Owned by the engine thread."""

    __slots__ = ("_count", "_pending", "_prompt", "_raw", "_spell", "end", "post_sampling")

    def __init__(self, options: LogprobOptions, spell: Callable[[int], bytes]) -> None:
        self._count = options.count
        self._spell = spell
        self._prompt: list[Logprob] | None = [] if options.of_prompt else None
        self._raw: list[NDArray[np.float64]] = []  # the logits of the tokens to be chosen, before or after the sampling
        self._pending: list[Logprob] = []  # of the tokens whose text has not been sent yet
        self.post_sampling = options.post_sampling
        self.end: Logprob | None = None  # of the end token

    def add_prompt(self, rows: Iterable[tuple[Logits, int]]) -> None:
        """Take tokens of the prompt, each with the logits before it. In order, each once."""
        assert self._prompt is not None
        for row, token in rows:
            self._prompt.append(self._logprob(row.astype(np.float64), token))

    def prompt(self, first: int) -> Prompt | None:
        """What is told of a prompt that begins with this token: once, and only where it was asked for."""
        if self._prompt is None:
            return None
        event = Prompt((first, self._spell(first)), tuple(self._prompt))
        self._prompt = None
        return event

    def begin(self, logits: Logits, *, ahead: bool) -> None:
        """The logits of a token to be chosen, before anything changes them. ahead: it stands behind a draft."""
        if not ahead:
            self._raw.clear()
        if not self.post_sampling:
            self._raw.append(logits.astype(np.float64))

    def sampled(self, left: Candidates, vocab: int) -> None:
        """What the sampling has left of the logits that were begun last."""
        self._raw.append(np.full(vocab, -np.inf))
        self._raw[-1][left.ids] = left.logits

    def choose(self, token: int, *, ends: bool) -> None:
        """A token was chosen by the oldest of the logits; there are none of an answer's that was begun elsewhere."""
        if not self._raw:
            return
        likely = self._logprob(self._raw.pop(0), token)
        if ends:
            self.end = likely
        else:
            self._pending.append(likely)

    def take(self) -> tuple[Logprob, ...]:
        """Those of the tokens whose text is sent now."""
        pending = tuple(self._pending)
        self._pending.clear()
        return pending

    def _logprob(self, raw: NDArray[np.float64], token: int) -> Logprob:
        """The logarithm of the token's probability and of the likeliest; ties go to the lower id."""
        best = raw.max()
        total = float(best + np.log(np.exp(raw - best).sum()))
        known = int(np.isfinite(raw).sum()) if self.post_sampling else len(raw)
        count = min(self._count, known)
        near = np.flatnonzero(raw >= np.partition(raw, -count)[-count]) if count else np.empty(0, np.int64)
        top = near[np.lexsort((near, -raw[near]))][:count].tolist()
        likeliest = tuple((other, self._spell(other), float(raw[other]) - total) for other in top)
        return Logprob(token, self._spell(token), float(raw[token]) - total, likeliest)
