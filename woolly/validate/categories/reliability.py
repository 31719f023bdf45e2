"""reliability: a few users for a long time: whether the server stays up, whether its memory grows, and what it logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from statistics import median

from woolly.validate.categories.result import CategoryResult
from woolly.validate.client import Unreachable
from woolly.validate.gates import Finding, Measurement, NotMeasured
from woolly.validate.process import ProcessUsage, repeated, sampled
from woolly.validate.subject import Subject
from woolly.validate.users import run_users

TOKENS = 32
WARM = 3  # the first third of the run is warm-up
ALLOCATOR_BYTES = 2e6  # bytes that allocators may keep without it being a leak
FEWEST_SAMPLES = 12  # measurements of memory after the warm-up


def measure(subject: Subject) -> CategoryResult:
    settings = subject.settings.tests.reliability
    subject.say(f"{settings.users} users for {settings.duration:g} s")
    interval_s = min(settings.check_interval, settings.duration / 40)
    answers: list[bool] = []

    def ask() -> bool:
        answers.append(False)
        with suppress(Unreachable):
            answers[-1] = subject.client.ask("GET", "/health", timeout_s=settings.check_interval + 5)[0] == 200
        return True

    with sampled(subject.pid, interval_s) as usages, repeated(settings.check_interval, ask):
        # The same questions again and again: new ones would fill the cache, and that growth is no leak.
        visits = run_users(
            subject, settings.users, settings.duration, tokens=TOKENS, pause_s=settings.pause, fresh=False
        )
    lines = None if subject.started is None else subject.started.bad_lines()
    details = {
        "duration_s": settings.duration,
        "requests": len(visits.rows),
        "errors": visits.errors[:10],
        "uptime": sum(answers) / max(1, len(answers)),
        "memory": [{"at_s": usage.at_s - usages[0].at_s, "rss": usage.rss} for usage in usages],
        "log": lines,
    }
    return CategoryResult(details, {"memory_growth": growth(usages), "clean_log": _log_finding(lines)})


def growth(usages: Sequence[ProcessUsage]) -> Finding:
    """Megabytes an hour between the medians of the first fifth after warm-up and the last, beyond ALLOCATOR_BYTES."""
    warm = list(usages)[len(usages) // WARM :]
    if len(warm) < FEWEST_SAMPLES:
        return NotMeasured(
            "the server's memory cannot be seen from here, or was not seen for long enough", applies=bool(usages)
        )
    part = max(1, len(warm) // 5)
    first, last = warm[:part], warm[-part:]
    hours = (median(usage.at_s for usage in last) - median(usage.at_s for usage in first)) / 3600
    grown = median(usage.rss for usage in last) - median(usage.rss for usage in first)
    note = f"{grown / 1e6:+.1f} MB in {hours * 60:.1f} minutes"
    return Measurement((max(0.0, grown - ALLOCATOR_BYTES) / 1e6 / hours,), note=note)


def _log_finding(lines: list[str] | None) -> Finding:
    if lines is None:
        return NotMeasured("the log of a server that was running before is not ours to read", applies=False)
    return Measurement((float(len(lines)),), note="; ".join(lines[:1]))
