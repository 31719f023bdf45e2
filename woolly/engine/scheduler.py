"""Scheduler: which tokens of which sequence the next step computes.

A sequence is what is known (tokens) and how much of it has its state (computed). The scheduler hands out what is
missing, within the bounds of a step: running sequences first, then waiting ones, oldest first and none overtaking.
When pages run out, the youngest running sequence goes back to the head of the queue; its remembered pages stay until
somebody needs them.

A sequence whose reader is behind keeps its pages and its turn in the order, but no place in the step.

Every running sequence is older than every waiting one. The oldest can always go on, because the engine takes no
sequence that does not fit the pool alone.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from woolly.engine.pages import Pages
from woolly.engine.sequence import Sequence
from woolly.plan import Bounds

Step: TypeAlias = list[tuple[Sequence, int]]  # how many tokens more of each


def schedule(waiting: deque[Sequence], running: list[Sequence], pages: Pages, bounds: Bounds, rows: int) -> Step:
    """The next step, of at most `rows` tokens; empty if there is nothing to do. Once a turn."""
    step: Step = []
    wants, index, short = bounds.wants, 0, False
    while index < len(running) and rows > 0 and wants > 0 and len(step) < bounds.sequences:
        sequence = running[index]
        if not sequence.stream.room():  # its reader is behind: it keeps its pages and gives way
            index += 1
            continue
        count = _share(sequence, rows, wants - (len(running) - index - 1) - bool(waiting))
        if pages.grow(sequence, sequence.computed + count):
            index += 1
            step.append((sequence, count))
            rows -= count
            wants -= _wanted(sequence, count)
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
        running.append(waiting.popleft())
        count = _share(sequence, rows, wants - bool(waiting))
        pages.grow(sequence, sequence.computed + count)
        step.append((sequence, count))
        rows -= count
        wants -= _wanted(sequence, count)
    return step


def _share(sequence: Sequence, rows: int, wants: int) -> int:
    """How many tokens a sequence may compute, with so many rows and wanted rows left; one at least.

    Who wants the logits of many rows leaves one to each that comes after it, so that nobody's answer stands still.
    """
    count = min(len(sequence.tokens) - sequence.computed, rows)
    if sequence.told < sequence.every:
        skipped = max(sequence.told - sequence.computed, 0)  # put back once: these are computed again, and not wanted
        count = min(count, skipped + max(wants, 1))
    return count


def _wanted(sequence: Sequence, count: int) -> int:
    """Of how many of its next `count` rows a sequence needs the logits: those it wants anyway, and the last known."""
    known = len(sequence.tokens)
    last = sequence.computed + count == known and known > sequence.every
    return (len(sequence.wanted(count)) if sequence.every else 0) + last


class Pace:
    """Turns the time a step may take into rows, by the rate measured so far; chunks do not change any result.

    So a new arrival, a cancel and every other stream wait at most about STEP_S. Below FEW rows the weights are read
    faster than they are used, a smaller step would hardly be shorter, and its time tells nothing about rows.
    """

    STEP_S = 0.2
    FEW = 32
    FIRST = 64  # rows of the first step, when nothing is known

    __slots__ = ("_most", "_rate", "rows")

    def __init__(self, most: int) -> None:
        self._most = most
        self._rate = 0.0  # rows a second
        self.rows = min(self.FIRST, most)

    def measure(self, rows: int, seconds: float) -> None:
        """A step of `rows` took `seconds`. Once a step."""
        if rows < min(self.FEW, self._most):
            return
        rate = rows / max(seconds, 1e-6)
        self._rate = 0.5 * (self._rate + rate) if self._rate else rate
        rows = int(self._rate * self.STEP_S)
        self.rows = min(max(rows - rows % 16, self.FEW), self._most)
