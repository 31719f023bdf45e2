"""Scheduler: which tokens of which sequence the next step computes.

A sequence is what is known (tokens) and how much of it has its state (computed). The scheduler hands out what is
missing as spans, within the bounds of a step. A span says which of its outputs are wanted; everybody else reads that
and counts nothing again. What always holds:

- Answers that have begun have their rows in every step, oldest first. Prompts share the rows that the time of a step
  leaves (`Pace`), in the order of `Shares`; of those that wait, the first that does not fit keeps out all behind it.
- No new sequence computes a page that the prompt of a running one is about to fill: it waits for that page. If the
  running one ends before, the next sequence computes the page.
- When pages run out, the youngest running sequence goes back to the queue; its remembered pages stay until others need
  them. No sequence that is in the step already is put back.
- A sequence whose reader is behind keeps its pages, but has no place in the step.

The oldest can always go on, because the engine takes no sequence that does not fit the pool alone.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from woolly.engine.cache.pages import Pages
from woolly.engine.sequence import Sequence
from woolly.engine.shares import Shares
from woolly.plan import Bounds


class Span(NamedTuple):  # made for every sequence of every step: half a microsecond less than a frozen dataclass
    """Rows of one sequence in one step."""

    sequence: Sequence
    first: int  # position of its first row
    count: int  # type: ignore[assignment]  # of rows; tuples have a method of this name, which nobody calls
    want: range  # positions whose output is wanted: none in the middle of a prompt, the last one, or many


Step: TypeAlias = list[Span]


class Pace:
    """Turns the time a step may take into rows of prompts, by the rate measured so far; chunks do not change a result.

    A step takes about STEP_S, so a new arrival and a cancel wait no longer. In a step that decodes, too, the rows of
    prompts have WITH_DECODES_S, whatever the rows of answers take: the gaps between tokens grow by so much. With less
    than LEAST_ALONE rows the time of a step is that of reading the weights: a smaller step would hardly be shorter, and
    its time tells nothing about rows. A step that decodes reads them anyway, and may have as few as LEAST_WITH_DECODES.
    """

    STEP_S = 0.2
    WITH_DECODES_S = 0.1
    LEAST_ALONE = 32
    LEAST_WITH_DECODES = 8
    FIRST = 64  # rows of the first step, when nothing is known

    __slots__ = ("_answers_s", "_most", "rate")

    def __init__(self, most: int) -> None:
        self._most = most
        self.rate = 0.0  # rows of prompts a second
        self._answers_s = 0.0  # seconds of a step without prompts

    def rows(self, *, with_decodes: bool, others: int = 0) -> int:
        """How many rows of prompts a step may have, with the next tokens of answers in the same step or without any.

        others: rows that the step has already. The sum is a multiple of 8, since 8 rows share each pass over the
        weights, unless the time allows fewer rows than LEAST_ALONE or LEAST_WITH_DECODES.
        """
        if not self.rate:
            return min(self.LEAST_ALONE if with_decodes else self.FIRST, self._most)
        rows = int(self.rate * (self.WITH_DECODES_S if with_decodes else self.STEP_S))
        return min(
            max(rows - (rows + others) % 8, self.LEAST_WITH_DECODES if with_decodes else self.LEAST_ALONE), self._most
        )

    def measure(self, rows: int, seconds: float, *, with_decodes: bool) -> None:
        """A step with so many rows of prompts took `seconds`. Once a step."""
        if not rows:
            self._answers_s = 0.5 * (self._answers_s + seconds) if self._answers_s else seconds
        elif rows >= min(self.LEAST_WITH_DECODES if with_decodes else self.LEAST_ALONE, self._most):
            prompts_s = max(seconds - self._answers_s, 0.25 * seconds) if with_decodes else seconds
            rate = rows / max(prompts_s, 1e-6)
            self.rate = 0.5 * (self.rate + rate) if self.rate else rate


class Present(NamedTuple):
    """The sequences of a scheduler at one moment."""

    running: tuple[Sequence, ...]
    waiting: tuple[Sequence, ...]


class Scheduler:
    """The sequences of an engine: those that wait, and those that run, in the order in which they began to.

    single_step: a sequence is computed in one step or not at all, as a model that is not causal needs it. Owned by the
    engine thread. Others read `present`, a value that is put in place of the last whenever a sequence comes, moves or
    goes: a queue that they read themselves might change under their eyes.
    """

    __slots__ = ("answering", "bounds", "pace", "pages", "present", "running", "shares", "single_step", "waiting")

    def __init__(self, pages: Pages, bounds: Bounds, *, single_step: bool = False) -> None:
        self.pages = pages
        self.bounds = bounds
        self.single_step = single_step
        self.pace = Pace(bounds.rows)
        self.shares = Shares()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.present = Present((), ())
        self.answering = 0  # spans of the last step, its first ones, that are of answers

    def enter(self, sequence: Sequence) -> None:
        """Let a new sequence wait for its first step."""
        self.shares.enter(sequence)
        self.waiting.append(sequence)
        self._publish()

    def put_back(self, sequence: Sequence) -> None:
        """Take its pages from a running sequence; it waits again."""
        self.running.remove(sequence)
        self.pages.release(sequence)
        self.waiting.appendleft(sequence)
        self._publish()

    def drop(self, sequence: Sequence) -> bool:
        """Let a sequence go, with its pages; False if it is not here."""
        for queue in (self.running, self.waiting):
            if sequence in queue:
                queue.remove(sequence)
                self.pages.release(sequence)
                self._publish()
                return True
        return False

    def measure(self, step: Step, seconds: float) -> None:
        """The last step took so long. Once a step."""
        rows = sum(span.count for span in step[self.answering :])
        self.pace.measure(rows, seconds, with_decodes=self.answering > 0)

    def schedule(self) -> Step:
        """The next step; empty if there is nothing to do. Once a turn."""
        step: Step = []
        prompts: list[Sequence] = []
        running, rows, index, behind, short = self.running, self.bounds.rows, 0, 0, False
        while index < len(running):
            sequence = running[index]
            if not sequence.answer.stream.room():
                behind += 1
            elif not sequence.answers:
                prompts.append(sequence)
            elif rows > 0 and len(step) < self.bounds.sequences:
                span = _span(sequence, rows, 1)
                if not self.pages.grow(sequence, span.first + span.count):
                    short = True
                    self.put_back(running[-1])
                    continue
                step.append(span)
                rows -= span.count
            index += 1
        self.answering = len(step)
        if prompts or self.waiting:
            others = sum(span.count for span in step)
            rows = min(rows, self.pace.rows(with_decodes=bool(step), others=others))
            self._share_out(step, prompts, rows, places=0 if short else self.bounds.sequences - len(running) + behind)
        if prompts and not step:
            self._force(step, prompts[0])
        return step

    def _share_out(self, step: Step, prompts: list[Sequence], rows: int, places: int) -> None:
        """Give the rows that are left to prompts: to those that run, and to as many that wait as there are places."""
        wants, runs = self.bounds.wants - len(step), set(prompts)
        line = self.shares.line([*prompts, *self.waiting] if places > 0 else prompts)
        for index, sequence in enumerate(line):
            left = self.bounds.sequences - len(step)
            if rows <= 0 or wants <= 0 or left <= 0:
                break
            if sequence not in runs:
                if places <= 0 or any(self.pages.fills_for(other, sequence) for other in prompts):
                    continue
                if not self._has_room(sequence, step, rows, wants) or not self._admit(sequence, prompts):
                    places = 0  # no other may overtake it
                    continue
                prompts.append(sequence)
                places -= 1
            # One that wants many outputs leaves one to each that comes after it, so that all of them advance.
            after = min(len(line) - index, left) - 1
            if not self.single_step:
                span = _span(sequence, min(rows, self.pages.reach(sequence) - sequence.computed), max(wants - after, 1))
            elif self._has_room(sequence, step, rows, wants):
                span = _span(sequence, self.bounds.rows, self.bounds.wants)
            else:
                continue
            if span.count > 0 and self.pages.grow(sequence, span.first + span.count):
                self.shares.give(sequence, span.count)
                step.append(span)
                rows -= span.count
                wants -= len(span.want)

    def _has_room(self, sequence: Sequence, step: Step, rows: int, wants: int) -> bool:
        """Whether what must be computed of a sequence at once fits into the step; the first may be as long as any."""
        known = len(sequence.tokens)
        return not self.single_step or not step or (known <= rows and known - sequence.wanted <= wants)

    def _admit(self, sequence: Sequence, prompts: list[Sequence]) -> bool:
        """Let a sequence run if there are pages for it and for what the running ones will need."""
        # A page to spare for each that runs: else the newcomer would be put back at the next page border.
        spare = 0 if self.single_step else len(self.running)
        if not self.pages.admit(sequence, spare=spare, unfinished=prompts):
            return False
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self._publish()
        return True

    def _publish(self) -> None:
        self.present = Present(tuple(self.running), tuple(self.waiting))

    def _force(self, step: Step, sequence: Sequence) -> None:
        """No sequence could go on for lack of pages: the oldest one takes pages from the youngest."""
        rows = self.bounds.rows if self.single_step else self.pace.rows(with_decodes=False)
        rows = min(rows, self.pages.until_snapshot(sequence))
        span = _span(sequence, rows, self.bounds.wants)
        while not self.pages.grow(sequence, span.first + span.count):
            youngest = self.running[-1]
            self.put_back(youngest)
            if youngest is sequence:
                return
        self.shares.give(sequence, span.count)
        step.append(span)


def _span(sequence: Sequence, rows: int, wants: int) -> Span:
    """The next tokens of a sequence, with so many rows and wanted outputs left."""
    first, known = sequence.computed, len(sequence.tokens)
    if first + 1 == known == sequence.wanted + 1 and rows > 0:  # one token more of an answer: most spans are this
        return Span(sequence, first, 1, range(first, known))
    wanted = max(sequence.wanted, first)
    end = min(known, first + rows, wanted + wants)
    return Span(sequence, first, end - first, range(wanted, max(end, wanted)))
