"""Drafts: guesses at the next tokens of an answer, computed in the step that brings the next token anyway.

A draft stands behind the known tokens of a span. The model draws its own token at each of these positions, with the
seed, the penalties and the mask that it has there without any draft, and what it draws is the answer. Where that is
what the draft says, the next row was computed from the right token, and its token is drawn, too. So a draft changes how
many tokens a step brings and nothing else; rows behind the first difference are as if they had never been.

A guess is what the text said before in such a place (lookup.py), or what a smaller model says (draft_model.py). How
long a draft is follows from what was measured: how often guesses were right, what they and more rows cost. Where it
does not pay there is none. Drafts take only rows, outputs and pages that nobody else wants.
"""

from __future__ import annotations

from math import exp, log

from woolly.engine.cache.pages import Pages
from woolly.engine.scheduler import Span, Step
from woolly.engine.sequence import Sequence
from woolly.engine.speculation.draft_model import DraftModel
from woolly.engine.speculation.lookup import follow
from woolly.plan import Bounds

LENGTHS = (1, 2, 3, 5, 7, 11, 15)  # that a draft may have
PAYS = 1.05  # times as many tokens in the same time; less may be noise


class Price:
    """The cost of steps that have answers alone, by their rows; only relations of costs mean anything.

    A machine that others use, and texts that grow, change the time of all steps together; that is told apart from what
    rows cost, which changes slowly. Steps of more than MOST rows are not looked at. A cost that was not measured for
    LASTS steps counts as unknown: one slow step would otherwise keep drafts of that length away for ever.
    """

    MOST = 64
    LASTS = 128
    ROW = 0.12  # assumed cost of a further row until it is measured, where a step of one row costs 1

    __slots__ = ("_at", "_cost", "_level_s", "_steps", "_times")

    def __init__(self) -> None:
        self._cost = [1 + self.ROW * (rows - 1) for rows in range(self.MOST + 1)]
        self._times = [0] * (self.MOST + 1)  # how often each cost was measured
        self._at = [0] * (self.MOST + 1)  # the number of the step that measured each cost last
        self._steps = 0
        self._level_s = 0.0  # seconds of a cost of 1, lately

    def measure(self, rows: int, seconds: float) -> None:
        if rows > self.MOST or seconds <= 0:
            return
        if not self._known(rows):
            self._cost[rows], self._times[rows] = self.of(rows), 0
        self._steps += 1
        self._at[rows] = self._steps
        if not self._level_s:
            self._level_s = seconds / self._cost[rows]
        off = min(max(log(seconds / (self._level_s * self._cost[rows])), -1.0), 1.0)
        self._level_s *= exp(0.3 * off)
        cost = self._cost[rows] * exp(off * max(1 / (self._times[rows] + 3), 0.05))
        self._cost[rows] = min(max(cost, 0.01), 1e4)  # only the relation of two costs means anything
        self._times[rows] += 1

    def of_time(self, seconds: float) -> float:
        """The cost of other work that takes so many seconds."""
        return seconds / self._level_s if self._level_s else 0.0

    def of(self, rows: int) -> float:
        """The cost of a step with so many rows; if it was not measured, that of the next smaller one that was, and more
        for each further row."""
        near = min(rows, self.MOST)
        while near > 1 and not self._known(near):
            near -= 1
        return self._cost[near] + self.ROW * (rows - near)

    def _known(self, rows: int) -> bool:
        return bool(self._times[rows]) and self._steps - self._at[rows] < self.LASTS


def best_length(chance: float, price: Price, rows: int, answers: int, most: int, each: float = 0.0) -> int:
    """How many tokens to guess for one of so many answers, in a step of so many rows; 0 where no number pays.

    each: what one guess costs, before anything of it is computed.
    """
    best, gain, now = 0, PAYS, price.of(rows)
    for length in LENGTHS:
        if length > most:
            break
        more = chance * (1 - chance**length) / (1 - chance) if chance < 1 else float(length)
        pays = (1 + more / answers) * now / (price.of(rows + length) + each * length)
        if pays > gain:
            best, gain = length, pays
    return best


class Drafts:
    """Owned by the engine thread."""

    __slots__ = ("_bounds", "_pages", "model", "price")

    def __init__(self, bounds: Bounds, pages: Pages, model: DraftModel | None = None) -> None:
        self._bounds = bounds
        self._pages = pages
        self.model = model
        self.price = Price()

    def extend(self, step: Step) -> None:
        """Put drafts behind the spans of a step that has answers alone, one after another. Once a turn."""
        bounds, rows, wants = self._bounds, sum(span.count for span in step), len(step)
        for index, span in enumerate(step):
            sequence, known = span.sequence, len(span.sequence.tokens)
            most = min(bounds.rows - rows, bounds.wants - wants, sequence.limit - known - 1)
            if sequence.guesses is None or most <= 0:
                continue
            draft = _possible(sequence, self.guess(sequence, rows, len(step), most))
            if draft and self._pages.grow(sequence, known + len(draft)):
                sequence.draft = draft
                end = known + len(draft)
                step[index] = Span(sequence, span.first, end - span.first, range(span.want.start, end))
                rows += len(draft)
                wants += len(draft)

    def guess(self, sequence: Sequence, rows: int, answers: int, most: int) -> list[int]:
        """The next tokens of one of so many answers, in a step of so many rows; as many as pay, and at most `most`."""
        guesses = sequence.guesses
        assert guesses is not None
        known, repeat = len(sequence.tokens), guesses.lookup.find(sequence.words)
        if repeat is not None:
            place, guesses.chance = repeat
            length = best_length(guesses.chance.at(known), self.price, rows, answers, most)
            if length:
                return follow(sequence.words, place, length)
        if self.model is not None and (chance := self.model.chance(sequence)) is not None:
            guesses.chance, each = chance, self.price.of_time(self.model.seconds)
            length = best_length(chance.at(known), self.price, rows, answers, most, each)
            return self.model.guess(sequence, length) if length else []
        return []

    def forget(self, sequence: Sequence) -> None:
        """Let go of what was kept for an answer that has ended."""
        if self.model is not None:
            self.model.forget(sequence)

    def close(self) -> None:
        if self.model is not None:
            self.model.close()


def _possible(sequence: Sequence, draft: list[int]) -> list[int]:
    """As much of a draft as may come: no row is worth computing behind the end, or behind what a format forbids.

    None of it where the masks of the answer's format take long: a step waits for the masks of all its rows.
    """
    ends, matcher = sequence.answer.ends, sequence.answer.matcher
    end = next((index for index, token in enumerate(draft) if token in ends), len(draft))
    draft = draft[:end]
    if matcher is None or not draft:
        return draft
    return draft[: matcher.accepts(draft)] if matcher.quick else []
