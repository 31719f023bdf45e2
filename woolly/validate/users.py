"""Users: threads that ask, read as the text comes, think, and ask again, until the time is over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from random import Random

from woolly.validate.client import Answer
from woolly.validate.found import together
from woolly.validate.prompts import CHATTER
from woolly.validate.subject import Subject


@dataclass(frozen=True, slots=True)
class Visit:
    """at_s: since the beginning."""

    at_s: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class Visits:
    rows: list[Visit] = field(default_factory=list)

    @property
    def good(self) -> list[Answer]:
        return [visit.answer for visit in self.rows if visit.answer.ok]

    @property
    def errors(self) -> list[str]:
        return [visit.answer.error or "an answer without an end" for visit in self.rows if not visit.answer.ok]


def visit(
    subject: Subject,
    users: int,
    seconds: float,
    *,
    tokens: int,
    pause_s: tuple[float, float],
    ramp_s: float = 0.0,
    fresh: bool = True,
) -> Visits:
    """So many users for so long. Each asks at least once; fresh: what nobody asked before, answered by chance."""
    begun = time.monotonic()
    work = [
        partial(_user, subject, number, begun, seconds, tokens, pause_s, ramp_s * number / users, fresh)
        for number in range(users)
    ]
    return Visits([row for rows in together(work) for row in rows])


def _user(
    subject: Subject,
    number: int,
    begun: float,
    seconds: float,
    tokens: int,
    pause_s: tuple[float, float],
    wait_s: float,
    fresh: bool,
) -> list[Visit]:
    dice = Random(number)
    rows: list[Visit] = []
    time.sleep(wait_s)
    while not rows or time.monotonic() - begun < seconds:
        question = CHATTER[(number + len(rows)) % len(CHATTER)]
        fields: dict[str, object] = {"max_tokens": tokens, "temperature": 0}
        if fresh:
            question += f" ({dice.randrange(1_000_000)})"
            fields |= {"temperature": 0.7, "seed": dice.randrange(1 << 30)}
        at = time.monotonic() - begun
        if subject.file.card.chat:
            answer = subject.client.chat([{"role": "user", "content": question}], **fields)
        else:
            answer = subject.client.complete(question, **fields)
        rows.append(Visit(at, answer))
        time.sleep(min(dice.uniform(*pause_s), max(0.0, seconds - (time.monotonic() - begun))))
    return rows
