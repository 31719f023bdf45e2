"""Users: threads that ask, read as the text comes, think, and ask again, until the time is over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from random import Random

from woolly.validate.categories.result import run_concurrently
from woolly.validate.client import Answer
from woolly.validate.prompts import CHATTER
from woolly.validate.subject import Subject


@dataclass(frozen=True, slots=True)
class UserRequest:
    """An answer, and when it was asked for: at_s, in seconds since the run began."""

    at_s: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class LoadResult:
    rows: list[UserRequest] = field(default_factory=list)

    @property
    def good(self) -> list[Answer]:
        return [run_users.answer for run_users in self.rows if run_users.answer.ok]

    @property
    def errors(self) -> list[str]:
        return [
            run_users.answer.error or "an answer without an end" for run_users in self.rows if not run_users.answer.ok
        ]


def run_users(
    subject: Subject,
    users: int,
    seconds: float,
    *,
    tokens: int,
    pause_s: tuple[float, float],
    ramp_s: float = 0.0,
    fresh: bool = True,
) -> LoadResult:
    """Run so many users for so long. Each asks at least once. fresh: random questions that were not asked before."""
    begun = time.monotonic()
    work = [
        partial(_user, subject, number, begun, seconds, tokens, pause_s, ramp_s * number / users, fresh)
        for number in range(users)
    ]
    return LoadResult([row for rows in run_concurrently(work) for row in rows])


def _user(
    subject: Subject,
    number: int,
    begun: float,
    seconds: float,
    tokens: int,
    pause_s: tuple[float, float],
    wait_s: float,
    fresh: bool,
) -> list[UserRequest]:
    rng = Random(number)
    rows: list[UserRequest] = []
    time.sleep(wait_s)
    while not rows or time.monotonic() - begun < seconds:
        question = CHATTER[(number + len(rows)) % len(CHATTER)]
        fields: dict[str, object] = {"max_tokens": tokens, "temperature": 0}
        if fresh:
            question += f" ({rng.randrange(1_000_000)})"
            fields |= {"temperature": 0.7, "seed": rng.randrange(1 << 30)}
        at = time.monotonic() - begun
        if subject.file.card.chat:
            answer = subject.client.chat([{"role": "user", "content": question}], **fields)
        else:
            answer = subject.client.complete(question, **fields)
        rows.append(UserRequest(at, answer))
        time.sleep(min(rng.uniform(*pause_s), max(0.0, seconds - (time.monotonic() - begun))))
    return rows
