"""regression: this run beside a saved one.

The verdict is `slower` only where noise cannot explain it, and `not slower` only where a loss would have been found.

Two runs are hours apart, so slices cannot alternate between them, and the machine may be faster in one than in the
other. So each speed is in units of the machine's speed in the same slice: tokens in the time of a read of memory,
prompts in cycles of the clock. Prompts are arithmetic, which others can only slow down: a fast quantile counts.
Slices in which other processes worked are left out. The interval of the ratio of both figures comes from a bootstrap
over blocks of neighbouring slices, which drift alike, and from how much runs of one build differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from woolly.errors import NotFoundError, RequestError, printable
from woolly.validate.categories.result import CategoryResult
from woolly.validate.categories.speed import CALM
from woolly.validate.gates import Finding, Measurement, NotMeasured

TOLERANCE = 0.05
FEWEST = 24  # slices that each run must have
BLOCKS = 8
DRAWS = 2000
SURE = 0.005  # the share of draws outside of the interval, at each end


@dataclass(frozen=True, slots=True)
class ComparedSpeed:
    """How a speed of slices becomes one of a run.

    unit: the factor for a slice's speed. quantile: of the products. spread: measured standard deviation of the figure
    between runs of one build. detectable: `not slower` is said only where the interval excludes this loss.
    """

    unit: Callable[[Mapping[str, Any]], float]
    quantile: float
    spread: float
    detectable: float


FIGURES = {
    "tokens_per_s": ComparedSpeed(lambda row: float(row["memory_s"]), 0.5, 0.025, 0.15),
    "prompt_per_s": ComparedSpeed(lambda row: 1 / float(row["clock_ghz"]), 0.9, 0.01, 0.1),
}
NEEDED = (*FIGURES, "memory_s", "clock_ghz")  # fields that each saved slice must have


@dataclass(frozen=True, slots=True)
class Decision:
    """ratio: speed now over speed then, with its interval."""

    verdict: Literal["slower", "not slower", "cannot tell"]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def measure(details: Mapping[str, Any], saved: Mapping[str, Any], machine: str, model: str) -> CategoryResult:
    """The slices of this run's speed beside those of the saved one, which must be of this machine and model."""
    for what, ours, theirs in (
        ("processor", machine, saved.get("machine", {}).get("processor")),
        ("model", model, saved.get("model", {}).get("sha256")),
    ):
        if ours != theirs:
            why = f"the saved run is of another {what}: {printable(theirs)}"
            return CategoryResult({"why": why}, {"regression": NotMeasured(why)})
    then, now = saved["tests"]["inference_speed"]["slices"], details["slices"]
    decisions = {name: decide(then, now, name) for name in FIGURES}
    rows = {name: asdict(one) for name, one in decisions.items()}
    return CategoryResult({"saved": saved["metadata"]["timestamp"], **rows}, {"regression": _finding(decisions)})


def read_saved(path: str) -> dict[str, Any]:
    """A saved report that has slices."""
    try:
        saved = json.loads(Path(path).read_bytes())
        for one in saved["tests"]["inference_speed"]["slices"]:
            if not all(0 < one[name] < math.inf for name in NEEDED) or not 0 <= one["foreign"] <= 1:
                raise ValueError
        str(saved["metadata"]["timestamp"])
    except OSError as error:
        raise NotFoundError(f"{printable(path)} cannot be read: {printable(error.strerror)}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError(
            f"{printable(path)} is no report with a speed in it", suggestion="make one with --save", param="--compare"
        ) from None
    assert isinstance(saved, dict)
    return saved


def decide(then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], name: str) -> Decision:
    """Decide whether a speed is lower than in the saved run."""
    figure = FIGURES[name]
    runs = [[row[name] * figure.unit(row) for row in rows if row["foreign"] <= CALM] for rows in (then, now)]
    if min(map(len, runs)) < FEWEST:
        why = f"fewer than {FEWEST} slices in which nobody else worked; repeat without --quick, on a calm machine"
        return Decision("cannot tell", why=why)
    return compare(runs[0], runs[1], figure)


def compare(then: Sequence[float], now: Sequence[float], figure: ComparedSpeed) -> Decision:
    """Compare two runs of slices, each in the order of measuring."""
    ratio = float(np.quantile(now, figure.quantile) / np.quantile(then, figure.quantile))
    runs = np.exp(2**0.5 * figure.spread * np.random.default_rng(3).standard_normal(DRAWS))
    drawn = runs * _bootstrap(now, figure.quantile, 2) / _bootstrap(then, figure.quantile, 1)
    low, high = (float(q) for q in np.quantile(drawn, (SURE, 1 - SURE)))
    if ratio < 1 - TOLERANCE and high < 1:
        return Decision("slower", ratio, low, high)
    if low > 1 - figure.detectable:
        return Decision("not slower", ratio, low, high)
    return Decision("cannot tell", ratio, low, high, "the slices spread too much; repeat on a calm machine")


def _finding(decisions: Mapping[str, Decision]) -> Finding:
    worst = min(decisions.values(), key=lambda one: 0.0 if one.ratio is None else one.ratio)
    slower = [one for one in decisions.values() if one.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda one: one.ratio or 0.0)
    elif any(one.verdict == "cannot tell" for one in decisions.values()):
        return NotMeasured(next(one.why for one in decisions.values() if one.verdict == "cannot tell"))
    assert worst.ratio is not None and worst.low is not None and worst.high is not None
    return Measurement((worst.low, worst.ratio, worst.high), worst.ratio)


def _bootstrap(values: Sequence[float], quantile: float, seed: int) -> NDArray[np.float64]:
    """The figures of runs that are resampled: blocks of slices, drawn with replacement."""
    rng = np.random.default_rng(seed)
    blocks = np.array_split(np.asarray(values, np.float64), BLOCKS)
    size = min(map(len, blocks))
    rows = np.stack([block[:size] for block in blocks])
    picks = rng.integers(0, BLOCKS, (DRAWS, BLOCKS))
    drawn = rows[picks].reshape(DRAWS, -1)
    drawn.sort(axis=1)  # np.quantile would select, which takes far longer
    place = quantile * (drawn.shape[1] - 1)
    low = int(place)
    figures: NDArray[np.float64] = np.quantile(drawn[:, low : low + 2], place - low, axis=1)
    return figures
