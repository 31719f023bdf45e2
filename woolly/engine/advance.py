"""What follows a step: note what it computed, take the next tokens, remember full pages.

Plain functions: all state is the engine's, and its sequences'. In the engine thread, once a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Protocol

import numpy as np

from woolly.device import Runner
from woolly.engine.cache.pages import Pages
from woolly.engine.failures import no_token, not_finite
from woolly.engine.grammar.masks import StepMasks
from woolly.engine.sampling.sampler import Choosing, Sampler
from woolly.engine.sampling.stages import NO_TOKEN, Logits
from woolly.engine.scheduler import Scheduler, Step
from woolly.engine.sequence import Sequence
from woolly.engine.tally import Tally
from woolly.errors import WoollyError
from woolly.request import Reason


class Advancing(Protocol):
    """What is needed here of the engine whose step it was."""

    runner: Runner
    pages: Pages
    scheduler: Scheduler
    sampler: Sampler
    masks: StepMasks
    tally: Tally

    def end(self, sequence: Sequence, reason: Reason) -> None: ...
    def fail(self, sequence: Sequence, error: WoollyError) -> None: ...


def advance(engine: Advancing, step: Step, outputs: Mapping[str, Logits], begun: float) -> None:
    """Take what a step that began at this time has brought."""
    now, output = perf_counter(), engine.runner.output
    engine.scheduler.measure(step, now - begun)
    choosing: Choosing = []
    chosen: list[tuple[Sequence, int, int]] = []  # sequences that get tokens, and their range of the drawn ones
    row = 0
    of_spans = output.rows == "spans"  # else a row for each wanted position
    for index, (sequence, first, count, want) in enumerate(step):
        sequence.computed = min(first + count, len(sequence.tokens))
        engine.pages.computed(sequence)
        before = len(choosing)
        if want:
            _take(engine, sequence, want, outputs, index if of_spans else row, choosing)
            row += len(want)
        if len(choosing) > before:
            chosen.append((sequence, before, len(choosing)))
    drawn, tokens = engine.sampler.tokens(outputs, choosing, engine.masks.rows), 0
    for sequence, begin, end in chosen:
        known = len(sequence.tokens)
        try:
            _accept(engine, sequence, drawn[begin:end], outputs, choosing[begin][1], now)
        except WoollyError as error:  # an error of its format: the other sequences of the step go on
            engine.fail(sequence, error)
        tokens += len(sequence.tokens) - known
    engine.tally.step(len(step), tokens, now - begun, decoding=engine.scheduler.answering == len(step))


def _take(
    engine: Advancing, sequence: Sequence, want: range, outputs: Mapping[str, Logits], row: int, choosing: Choosing
) -> None:
    """Give a sequence its wanted outputs, from this row on; add those that choose its next tokens to `choosing`."""
    known, answer, scores = len(sequence.tokens), sequence.answer, sequence.scores
    if want.start + 1 == known == want.stop and answer.plain and scores is None:  # one token more: most are this
        sequence.wanted = known
        choosing.append((answer, row, known))
        return None
    sequence.wanted = min(want.stop, known)
    chooses = want.stop >= known and scores is None
    scored = (known - 1 if chooses else want.stop) - want.start  # outputs of tokens whose next one is known
    if scored > 0:
        output = (scores.output if scores is not None else None) or engine.runner.output.name
        rows = outputs[output][row : row + scored]
        if not np.isfinite(rows).all():
            return engine.fail(sequence, not_finite(sequence.computed, output))
        sequence.score(want.start, rows)
        row += scored
    if chooses:
        for offset in range(want.stop - known + 1):
            if not answer.plain:
                logits = outputs[engine.runner.output.name][row + offset]
                answer.prepare(logits, sequence.words, sequence.draft[:offset])
            choosing.append((answer, row + offset, known + offset))
    elif want.stop == known:
        engine.end(sequence, "stop")
    return None


def _accept(
    engine: Advancing, sequence: Sequence, drawn: list[int], outputs: Mapping[str, Logits], row: int, now: float
) -> None:
    """Take the tokens that were drawn by the logits from this row on, up to the first that differs from the draft."""
    answer, draft, reason, taken = sequence.answer, sequence.draft, None, 0
    for token in drawn:
        if token == NO_TOKEN:
            return engine.fail(sequence, no_token(sequence, outputs[engine.runner.output.name][row + taken]))
        sequence.computed += taken > 0  # the row of the draft's token before this one
        reason = sequence.accept(token, now)
        taken += 1
        if reason is not None or (taken < len(drawn) and token != draft[taken - 1]):
            break
    if answer.last_s:
        engine.tally.gaps_of(taken, now - answer.last_s)
    answer.last_s = now
    reason = reason or sequence.take_forced(now)
    sequence.wanted = len(sequence.tokens) - 1
    if len(drawn) > 1:
        _count_draft(engine.tally, sequence, len(drawn) - 1, taken - 1)
        engine.pages.computed(sequence)
    if reason is not None:
        engine.end(sequence, reason)
    return None


def _count_draft(tally: Tally, sequence: Sequence, drafted: int, right: int) -> None:
    """Count a draft: its tokens, and those of them that were right."""
    tally.drafted += drafted
    tally.accepted += right
    if sequence.guesses is not None:
        sequence.guesses.count(len(sequence.tokens), drafted, right)
