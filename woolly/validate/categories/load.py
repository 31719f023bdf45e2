"""load_testing: several users at once, more and more; how long they wait, and how often they get no answer."""

from __future__ import annotations

from typing import Any

from woolly.validate.categories.result import CategoryResult, percentiles_ms
from woolly.validate.gates import Measurement
from woolly.validate.honesty import tokens_of
from woolly.validate.subject import Subject
from woolly.validate.users import LoadResult, run_users


def measure(subject: Subject) -> CategoryResult:
    settings = subject.settings.tests.load_testing
    levels, errors, count = [], [], 0
    for users in settings.concurrent_users:
        subject.say(f"{users} users for {settings.duration:g} s")
        visits = run_users(
            subject,
            users,
            settings.duration,
            tokens=settings.max_tokens,
            pause_s=settings.think_time,
            ramp_s=settings.ramp_up_time,
        )
        levels.append(_level(subject, users, visits, settings.duration))
        errors += visits.errors
        count += len(visits.rows)
    rates = tuple(level["error_rate"] for level in levels)
    return CategoryResult(
        {"levels": levels, "requests": count, "errors": errors[:10]},
        {"error_rate": Measurement(rates, len(errors) / count, note="; ".join(errors[:1]))},
    )


def _level(subject: Subject, users: int, visits: LoadResult, seconds: float) -> dict[str, Any]:
    good = visits.good
    last = max((row.at_s + row.answer.seconds for row in visits.rows), default=seconds)
    tokens = sum(tokens_of(subject.file, answer) for answer in good)
    return {
        "users": users,
        "requests": len(visits.rows),
        "error_rate": len(visits.errors) / len(visits.rows),
        "requests_per_second": len(good) / last,
        "tokens_per_second": tokens / last,
        "latency_ms": percentiles_ms([answer.seconds for answer in good]),
        "first_token_ms": percentiles_ms([answer.first_s for answer in good]),
        "inter_token_ms": percentiles_ms([gap for answer in good for gap in answer.gaps_s]),
    }
