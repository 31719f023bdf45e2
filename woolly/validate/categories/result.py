"""The result of a category, and the percentiles and threads that several categories use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from woolly.validate.gates import Finding

T = TypeVar("T")
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class CategoryResult:
    """details: the category's part of the report, as JSON; findings: of its gates, by their names."""

    details: dict[str, Any] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that `share` percent of all values do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, max(0, -(-int(share * len(ranked)) // 100) - 1))] if ranked else 0.0


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    return {f"p{share}": percentile(seconds, share) * 1e3 for share in PERCENTILES}


def run_concurrently(work: Iterable[Callable[[], T]]) -> list[T]:
    """Run all tasks at the same time, each in a thread, and return their results in order."""
    tasks = list(work)
    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        return [future.result() for future in [pool.submit(one) for one in tasks]]
