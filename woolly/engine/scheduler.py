"""Scheduler: which tokens of which sequence the next step computes.

A sequence is what is known (tokens) and how much of it has its state (computed). The scheduler hands out what is
missing as spans, within the bounds of a step: running sequences first, then waiting ones, oldest first and none
overtaking. A span says which of its outputs are wanted; everybody else reads that and counts nothing again.
When pages run out, the youngest running sequence goes back to the head of the queue; its remembered pages stay until
somebody needs them.

A sequence whose reader is behind keeps its pages and its turn in the order, but no place in the step.

Every running sequence is older than every waiting one. The oldest can always go on, because the engine takes no
sequence that does not fit the pool alone.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from woolly.engine.pages import Pages
from woolly.engine.sequence import Sequence
from woolly.plan import Bounds


class Span(NamedTuple):  # made for every sequence of every step: half a microsecond less than a frozen dataclass
    """Rows of one sequence in one step."""

    sequence: Sequence
    first: int  # position of its first row
    count: int  # type: ignore[assignment]  # of rows; tuples have a method of this name, which nobody calls
    want: range  # positions whose output is wanted: none in the middle of a prompt, the last one, or many


Step: TypeAlias = list[Span]


def schedule(
    waiting: deque[Sequence], running: list[Sequence], pages: Pages, bounds: Bounds, rows: int, *, whole: bool = False
) -> Step:
    """The next step, of at most `rows` tokens; empty if there is nothing to do. Once a turn.

    whole: a sequence is computed in one step or not at all, as a model needs it that is not causal.
    """
    step: Step = []
    wants, index, short = bounds.wants, 0, False
    while index < len(running) and rows > 0 and wants > 0 and len(step) < bounds.sequences:
        sequence = running[index]
        if not sequence.stream.room():  # its reader is behind: it keeps its pages and gives way
            index += 1
            continue
        span = _span(sequence, rows, wants - (len(running) - index - 1) - bool(waiting))
        if pages.grow(sequence, span.first + span.count):
            index += 1
            step.append(span)
            rows -= span.count
            wants -= len(span.want)
        else:
            short = True
            youngest = running.pop()
            pages.release(youngest)
            waiting.appendleft(youngest)

    while waiting and rows > 0 and wants > 0 and len(step) < bounds.sequences and not short:
        sequence = waiting[0]
        # A page to spare for each that runs: else the newcomer would be put back at the next page border.
        if not pages.admit(sequence, spare=len(running)):
            break
        span = _span(sequence, rows, wants - (len(waiting) > 1))
        if (whole and span.count < len(sequence.tokens)) or not pages.grow(sequence, span.first + span.count):
            pages.release(sequence)
            break
        running.append(waiting.popleft())
        step.append(span)
        rows -= span.count
        wants -= len(span.want)
    return step


def _span(sequence: Sequence, rows: int, wants: int) -> Span:
    """The next tokens of a sequence, with so many rows and wanted outputs left; one at least.

    A sequence that wants many outputs leaves one to each that comes after it, so that nobody's answer stands still.
    """
    first, known = sequence.computed, len(sequence.tokens)
    if first + 1 == known == sequence.wanted + 1:  # one token more of an answer: most spans are this
        return Span(sequence, first, 1, range(first, known))
    wanted = max(sequence.wanted, first)
    end = min(known, first + rows, wanted + max(wants, 1))
    return Span(sequence, first, end - first, range(wanted, max(end, wanted)))


class Pace:
    """Turns the time a step may take into rows, by the rate measured so far; chunks do not change any result.

    So a new arrival, a cancel and every other stream wait at most about STEP_S. Below FEW rows the weights are read
    faster than they are used, a smaller step would hardly be shorter, and its time tells nothing about rows.
    """

    STEP_S = 0.2
    FEW = 32
    FIRST = 64  # rows of the first step, when nothing is known

    __slots__ = ("_most", "_rate", "_whole", "rows")

    def __init__(self, most: int, *, whole: bool = False) -> None:
        self._most = most
        self._whole = whole  # steps are as large as sequences are
        self._rate = 0.0  # rows a second
        self.rows = most if whole else min(self.FIRST, most)

    def measure(self, rows: int, seconds: float) -> None:
        """A step of `rows` took `seconds`. Once a step."""
        if self._whole or rows < min(self.FEW, self._most):
            return
        rate = rows / max(seconds, 1e-6)
        self._rate = 0.5 * (self._rate + rate) if self._rate else rate
        rows = int(self._rate * self.STEP_S)
        self.rows = min(max(rows - rows % 16, self.FEW), self._most)
