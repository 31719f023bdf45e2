"""reliability: a few users for a long time. Does it stay up, does its memory grow, what does its log say?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from statistics import median

from woolly.validate.client import Unreachable
from woolly.validate.found import Found
from woolly.validate.gates import Finding, Measure, Missing
from woolly.validate.process import Use, every, sampled
from woolly.validate.subject import Subject
from woolly.validate.users import visit

TOKENS = 32
WARM = 3  # the first of so many parts is warm-up
KEPT = 2e6  # bytes that allocators may keep without it being a leak
FEWEST = 12  # looks at the memory


def measure(subject: Subject) -> Found:
    wishes = subject.settings.tests.reliability
    subject.say(f"{wishes.users} users for {wishes.duration:g} s")
    interval_s = min(wishes.check_interval, wishes.duration / 40)
    answers: list[bool] = []

    def ask() -> bool:
        answers.append(False)
        with suppress(Unreachable):
            answers[-1] = subject.client.ask("GET", "/health", timeout_s=wishes.check_interval + 5)[0] == 200
        return True

    with sampled(subject.pid, interval_s) as uses, every(wishes.check_interval, ask):
        # The same questions again and again: pages of a cache that fills with new ones are no leak.
        visits = visit(subject, wishes.users, wishes.duration, tokens=TOKENS, pause_s=wishes.pause, fresh=False)
    lines = None if subject.started is None else subject.started.bad_lines()
    details = {
        "duration_s": wishes.duration,
        "requests": len(visits.rows),
        "errors": visits.errors[:10],
        "uptime": sum(answers) / max(1, len(answers)),
        "memory": [{"at_s": use.at_s - uses[0].at_s, "rss": use.rss} for use in uses],
        "log": lines,
    }
    return Found(details, {"memory_growth": growth(uses), "clean_log": _clean(lines)})


def growth(uses: Sequence[Use]) -> Finding:
    """Megabytes an hour between the middle of the first fifth after warm-up and that of the last, beyond KEPT."""
    warm = list(uses)[len(uses) // WARM :]
    if len(warm) < FEWEST:
        return Missing(
            "the server's memory cannot be seen from here, or was not seen for long enough", applies=bool(uses)
        )
    part = max(1, len(warm) // 5)
    first, last = warm[:part], warm[-part:]
    hours = (median(use.at_s for use in last) - median(use.at_s for use in first)) / 3600
    grown = median(use.rss for use in last) - median(use.rss for use in first)
    note = f"{grown / 1e6:+.1f} MB in {hours * 60:.1f} minutes"
    return Measure((max(0.0, grown - KEPT) / 1e6 / hours,), note=note)


def _clean(lines: list[str] | None) -> Finding:
    if lines is None:
        return Missing("the log of a server that was running before is not ours to read", applies=False)
    return Measure((float(len(lines)),), note="; ".join(lines[:1]))
