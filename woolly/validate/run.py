"""A run: each category in turn, the gates judged, and one report of it all, which is JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from statistics import median
from typing import Any

import msgspec

from woolly.bench.figures import figures
from woolly.errors import WoollyError
from woolly.validate.categories import (
    comparative,
    load,
    loading,
    ole,
    quality,
    regression,
    reliability,
    resources,
    speed,
)
from woolly.validate.categories.result import CategoryResult
from woolly.validate.client import Unreachable
from woolly.validate.gates import GATES, PHASES, Finding, Measurement, NotMeasured, judge_all
from woolly.validate.process import sampled
from woolly.validate.settings import CategorySettings, Settings
from woolly.validate.subject import Subject, machine

VERSION = "1.0.0"  # of the format of a report


@dataclass(frozen=True, slots=True)
class Category:
    """How a category is measured, and about how long that takes."""

    measure: Callable[[Subject], CategoryResult]
    seconds: Callable[[CategorySettings], float]


TABLE: dict[str, Category] = {
    "inference_speed": Category(
        speed.measure, lambda t: 4 + 0.6 * t.inference_speed.slices + 2 * t.inference_speed.rounds
    ),
    "model_loading": Category(loading.measure, lambda t: 3 * t.model_loading.iterations),
    "quality_validation": Category(quality.measure, lambda t: 8 + 2 * t.quality_validation.checked_prompts),
    "ole": Category(ole.measure, lambda t: 5),
    "load_testing": Category(
        load.measure, lambda t: (t.load_testing.duration + 4) * len(t.load_testing.concurrent_users)
    ),
    "resource_utilization": Category(resources.measure, lambda t: 60),
    "comparative": Category(comparative.measure, lambda t: 3 * t.comparative.seconds),
    "reliability": Category(reliability.measure, lambda t: t.reliability.duration + 2),
}


class Progress:
    """Says what is being done, which of how many, and how long the rest will take."""

    def __init__(self, say: Callable[[str], None], seconds: Mapping[str, float]) -> None:
        self._say, self._seconds, self._names = say, seconds, list(seconds)
        self._begun = self._now = time.monotonic()
        self._category = ""

    def begin(self, category: str) -> None:
        self._category, self._now = category, time.monotonic()

    def __call__(self, what: str) -> None:
        at = self._names.index(self._category)
        self._say(f"{at + 1} of {len(self._names)}, {self._category}: {what}; about {_duration(self.left_s())} left")

    def left_s(self) -> float:
        """The estimate for the rest, scaled by how much longer than its own estimate the finished part took."""
        at = self._names.index(self._category)
        done = sum(self._seconds[name] for name in self._names[:at])
        pace = min(4.0, max(0.25, (self._now - self._begun) / done)) if done else 1.0
        here = max(0.0, self._seconds[self._category] * pace - (time.monotonic() - self._now))
        return here + pace * sum(self._seconds[name] for name in self._names[at + 1 :])


def validate(
    subject: Subject,
    categories: Sequence[str],
    *,
    phase: str = "phase5",
    saved: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """The report of these categories. A category that cannot be measured says so in its gates; the others go on."""
    timed = [name for name in categories if name in TABLE]
    progress = Progress(say, {name: TABLE[name].seconds(subject.settings.tests) for name in timed})
    subject = replace(subject, say=progress)
    before = machine(subject)
    tests: dict[str, Any] = {}
    findings: dict[str, Finding] = {}
    with sampled(subject.pid, subject.settings.tests.resource_utilization.sample_interval) as usages:
        subject = replace(subject, usages=usages)
        for name in timed:
            progress.begin(name)
            result = _measure(name, TABLE[name], subject)
            tests[name] = result.details
            findings |= result.findings
    if "regression" in categories and saved is not None and "slices" in tests.get("inference_speed", {}):
        compared = regression.measure(tests["inference_speed"], saved, before["processor"], subject.file.digest)
        tests["regression"] = compared.details
        findings |= compared.findings
    verdicts = judge_all(_with_phase_threshold(findings, phase), categories, list(PHASES).index(phase) + 1)
    return {
        "metadata": {
            "timestamp": datetime.now().astimezone().isoformat(timespec="seconds"),
            "version": VERSION,
            "config": without_key(subject.settings),
            "phase": phase,
            "server": subject.client.url if subject.started is None else "started for this run",
        },
        "machine": figures(before) | {"after": figures(machine(subject)), "foreign_share": _foreign_share(tests)},
        "model": _model(subject),
        "process": figures(resources.usage_summary(usages)),
        "gates": [row | {"pass": {"pass": True, "fail": False}.get(row["state"])} for row in map(_row, verdicts)],
        "tests": figures(tests),
    }


def without_key(settings: Settings) -> Any:
    """The settings as JSON, without the key."""
    place = msgspec.structs.replace(settings.woolly, api_key="***" if settings.woolly.api_key else "")
    return msgspec.to_builtins(msgspec.structs.replace(settings, woolly=place))


def _measure(name: str, category: Category, subject: Subject) -> CategoryResult:
    try:
        return category.measure(subject)
    except (WoollyError, Unreachable) as error:
        missing = {gate.name: NotMeasured(str(error)) for gate in GATES if gate.category == name}
        return CategoryResult({"error": str(error)}, dict(missing))


def _with_phase_threshold(findings: dict[str, Finding], phase: str) -> dict[str, Finding]:
    """The findings, with the threshold of G9 set to that of the phase."""
    one = findings.get("phase_speed")
    return (
        findings | {"phase_speed": replace(one, threshold=PHASES[phase])} if isinstance(one, Measurement) else findings
    )


def _row(verdict: Any) -> dict[str, Any]:
    row: dict[str, Any] = figures(asdict(verdict))
    return row


def _foreign_share(tests: Mapping[str, Any]) -> float | None:
    """The share of the processors that other processes used while speed was measured."""
    slices = tests.get("inference_speed", {}).get("slices")
    share: float | None = figures(median(one["foreign"] for one in slices)) if slices else None
    return share


def _model(subject: Subject) -> dict[str, Any]:
    card = subject.file.card
    return {
        "name": card.name,
        "file": card.file,
        "sha256": subject.file.digest,
        "size_bytes": card.size,
        "architecture": card.architecture,
        "parameters": card.parameters,
        "quantization": card.quantization,
        "read_bytes_per_token": subject.file.token_bytes,
    }


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
