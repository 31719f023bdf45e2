"""Sequence: one text in the making. Its known tokens, how many of them are computed, and where their state is.

`tokens` only grows; the first `prompt` of them were given. `computed` of them have their state, in the first
`page_count` pages of `table`. A step computes some of the missing ones; when none is missing, the output of the last
gives one token more, which `answer` chooses and tells (answer.py).

Behind the known tokens a step may compute a `draft`, which is no part of them (draft.py).

The outputs of all positions from `wanted` on are wanted: of an answer only that of its last known token, of a text that
is scored all. A position's output is given once, though its state may be computed again.

Some rows may be given instead of looked up: those of `features`. The ids at their positions hold a place, mean nothing,
and are no `words`: nothing that looks at the text looks at them.

An answer may have been begun elsewhere: it is `resumed` from its tokens, and its reader has the first `pieces` of its
text. The tokens are taken as if they had been chosen here, and what the reader has is not sent again. The rest is as if
one sequence had made all of it.

Made by the caller's thread, then owned by the engine thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from woolly.engine.answer import GREEDY, AnswerOptions, AnswerState, Resumed
from woolly.engine.features import Features, follows_word, words_of
from woolly.engine.sampling.stages import Logits
from woolly.engine.speculation.lookup import Guesses
from woolly.engine.work_clock import worked_s
from woolly.errors import RequestError, WoollyError
from woolly.limits import LIMITS
from woolly.request import NOBODY, Failed, Reason, Start, SubmitOptions, Usage

MOST_MISSING = 16  # tokens of an answer that is decoded; one that misses more is restored as a prompt is


@dataclass(frozen=True, slots=True)
class Scores:
    """Outputs that are asked for instead of an answer: logits of all tokens, or an embedding.

    rows: float32, one for each of the last tokens (all of them, or one alone), filled by the engine. output: its name;
    None: the model's first.
    """

    rows: Logits
    output: str | None = None


class Sequence:
    """A prompt and its answer, or, with `scores`, tokens whose output is asked for.

    limit: the most tokens it may come to. options: whose it is, and with whom it shares pages. lora: scales of the
    model's adapters, if it has any of them.
    """

    __slots__ = (
        "answer",
        "begins",
        "cached",
        "chain",
        "computed",
        "disk",
        "draft",
        "due",
        "features",
        "guesses",
        "in_memory",
        "limit",
        "lora",
        "options",
        "page_count",
        "prompt",
        "remembered",
        "scores",
        "slot",
        "table",
        "table_version",
        "tokens",
        "wanted",
        "words",
    )

    def __init__(
        self,
        tokens: Iterable[int],
        *,
        limit: int,
        answer: AnswerOptions = GREEDY,
        options: SubmitOptions = NOBODY,
        lora: Logits | None = None,
        scores: Scores | None = None,
        features: tuple[Features, ...] = (),
    ) -> None:
        self.tokens: list[int] = list(tokens)
        self.features = features  # of the prompt
        self.words = words_of(self.tokens, features)  # the same list where there are none
        self.prompt = len(self.tokens)
        self.limit = limit
        self.options = options
        self.due = 0  # its turn among the prompts of its key, kept by Shares
        self.lora = lora
        self.scores = scores
        self.answer = AnswerState(answer)
        from_first = answer.logprobs is not None and answer.logprobs.of_prompt
        self.wanted = 0 if from_first else self.prompt - (1 if scores is None else len(scores.rows))

        self.computed = 0
        self.table: NDArray[np.int32] | None = None  # [groups, pages], made by Pages
        self.table_version = 0  # counts its changes
        self.begins: list[int] = []  # the first page that is held, by group; those before it are behind the window
        self.page_count = 0  # pages in the table
        self.remembered = 0  # of those, the ones that have been named
        self.slot = -1  # the slot of the state that it carries; -1: none
        self.chain: list[bytes] = []  # digests of the whole pages, kept by Pages
        self.cached = 0  # positions of the prompt that it began with
        self.in_memory: int | None = None  # pages that it could have begun with when others were read from the disk
        self.disk = 0  # positions that it began with because of pages read from the disk

        self.draft: list[int] = []  # the guess at the next tokens that is computed now
        # None: its next tokens may not be guessed. DRY reads a text that only grows, and forbids what would be guessed.
        self.guesses = Guesses() if scores is None and self.answer.breaks is None else None
        if answer.resumed is not None and answer.resumed.tokens:
            self._resume(answer.resumed)

    @property
    def answers(self) -> bool:
        """Whether the answer has begun, and a few rows bring its next token."""
        known = len(self.tokens)
        return known > self.prompt and known - self.computed <= MOST_MISSING

    def start(self, now: float) -> None:
        """Its first step begins; `computed` is what remembered pages hold. Once."""
        self.answer.started_s = now
        self.cached = min(self.computed, self.prompt)
        self.answer.stream.put(Start(self.prompt, self.cached, self.disk))

    def score(self, first: int, logits: Logits) -> None:
        """Take the logits of the known tokens from `first` on, whose next token is known too. In order, each once."""
        if self.scores is not None:
            first -= self.prompt - len(self.scores.rows)
            self.scores.rows[first : first + len(logits)] = logits
        elif self.answer.likelihoods is not None:
            following = self.tokens[first + 1 : first + 1 + len(logits)]
            rows: Iterable[tuple[Logits, int]] = zip(logits, following, strict=True)
            if self.features:
                rows = [row for at, row in enumerate(rows, first + 1) if follows_word(at, self.features)]
            self.answer.likelihoods.add_prompt(rows)

    def accept(self, token: int, now: float) -> Reason | None:
        """Take a token, send the text it completes, and tell why the answer ends, if it does. Once a token."""
        self.tokens.append(token)
        if self.features:
            self.words.append(token)
        return self.answer.accept(token, now) or ("length" if len(self.tokens) >= self.limit else None)

    def _resume(self, resumed: Resumed) -> None:
        """Go on from an answer that was begun elsewhere: by its tokens alone, without their logits.

        Mirostat learns from the logits of each token, and an end token is told with its likelihood. These are chosen
        once more; they are the same again, and what was sent of them is not sent again.
        """
        answer, tokens = self.answer, resumed.tokens
        if answer.sampling.mirostat:
            return
        tokens = tokens[:-1] if tokens[-1] in answer.ends else tokens
        answer.pieces = len(tokens)  # nothing is sent now; a token makes one piece at the most
        for index, token in enumerate(tokens):
            if answer.over is not None or token in answer.ends:
                raise RequestError(f"the answer ends before given[{index}]", param="given")
            answer.over = self.accept(token, 0.0)
        answer.pieces += resumed.pieces - len(tokens)
        if answer.pieces < 0:
            raise RequestError(
                f"given has more pieces of text than the {resumed.pieces} that its reader has", param="given"
            )
        self.wanted = len(self.tokens) - 1

    def take_forced(self, now: float) -> Reason | None:
        """Take the tokens that the format leaves no choice of: their logits would not matter, so none are wanted.

        Likelihoods and mirostat need the logits of every token: with these nothing is taken. Called after each `accept`
        that did not end the answer. When finding them takes too long, the rest is drawn by masks in later steps.
        """
        answer = self.answer
        if answer.matcher is None or answer.likelihoods is not None or answer.sampling.mirostat:
            return None
        reason: Reason | None = None
        late = worked_s() + LIMITS.mask_s
        for _ in range(MOST_MISSING - 1):
            if reason is not None or worked_s() > late:
                break
            token = answer.matcher.forced()
            if token is None:
                break
            reason = self.accept(token, now)
        return reason

    def end(self, reason: Reason, now: float) -> None:
        """Send what was held back, and the last event."""
        usage = Usage(self.prompt, self.cached, len(self.tokens) - self.prompt, self.disk)
        drafted, accepted = (self.guesses.drafted, self.guesses.accepted) if self.guesses is not None else (0, 0)
        self.answer.end(reason, now, usage, drafted=drafted, accepted=accepted)

    def fail(self, error: WoollyError) -> None:
        self.answer.stream.put(Failed(error))
