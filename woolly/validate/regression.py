"""regression: this run beside a saved one.

Slower is said only where noise cannot explain it, and not slower only where a loss would have been seen.

Two runs are hours apart, so that nothing can alternate between them, and the machine gives more in one than in the
other. So each speed is told in units of what the machine gave beside it: tokens in the time in which memory is read,
prompts in cycles of the clock. Prompts are arithmetic, which others can only disturb: of them the fast end counts.
Slices in which others worked are left out. The figures of both runs are divided; the interval of that ratio comes from
drawing blocks of neighbouring slices again and again, since neighbours share what drifts, and from how much runs of one
build differ all the same.
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
from woolly.validate.found import Found
from woolly.validate.gates import Finding, Measure, Missing
from woolly.validate.speed import CALM

TOLERANCE = 0.05
FEWEST = 24  # slices of each run
BLOCKS = 8
DRAWS = 2000
SURE = 0.005  # the share of draws outside of the interval, at each end


@dataclass(frozen=True, slots=True)
class Figure:
    """How a speed of slices becomes one of a run.

    unit: what of a slice it is multiplied by. quantile: of the products. spread: the standard deviation of the figure
    from run to run of one build, measured. seen: the loss that must have been found, or nothing can be told.
    """

    unit: Callable[[Mapping[str, Any]], float]
    quantile: float
    spread: float
    seen: float


FIGURES = {
    "tokens_per_s": Figure(lambda row: float(row["memory_s"]), 0.5, 0.025, 0.15),
    "prompt_per_s": Figure(lambda row: 1 / float(row["clock_ghz"]), 0.9, 0.01, 0.1),
}
NEEDED = (*FIGURES, "memory_s", "clock_ghz")  # of a slice


@dataclass(frozen=True, slots=True)
class Decision:
    """ratio: speed now over speed then, with its interval."""

    verdict: Literal["slower", "not slower", "cannot tell"]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def measure(details: Mapping[str, Any], saved: Mapping[str, Any], machine: str, model: str) -> Found:
    """The slices of this run's speed beside those of the saved one, which must be of this machine and model."""
    for what, ours, theirs in (
        ("processor", machine, saved.get("machine", {}).get("processor")),
        ("model", model, saved.get("model", {}).get("sha256")),
    ):
        if ours != theirs:
            why = f"the saved run is of another {what}: {printable(theirs)}"
            return Found({"why": why}, {"regression": Missing(why)})
    then, now = saved["tests"]["inference_speed"]["slices"], details["slices"]
    found = {name: decide(then, now, name) for name in FIGURES}
    rows = {name: asdict(one) for name, one in found.items()}
    return Found({"saved": saved["metadata"]["timestamp"], **rows}, {"regression": _finding(found)})


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
    """Whether a figure is lower than it was."""
    figure = FIGURES[name]
    runs = [[row[name] * figure.unit(row) for row in rows if row["foreign"] <= CALM] for rows in (then, now)]
    if min(map(len, runs)) < FEWEST:
        why = f"fewer than {FEWEST} slices in which nobody else worked; repeat without --quick, on a calm machine"
        return Decision("cannot tell", why=why)
    return compare(runs[0], runs[1], figure)


def compare(then: Sequence[float], now: Sequence[float], figure: Figure) -> Decision:
    """Two runs of slices, each in the order in which they were taken."""
    ratio = float(np.quantile(now, figure.quantile) / np.quantile(then, figure.quantile))
    runs = np.exp(2**0.5 * figure.spread * np.random.default_rng(3).standard_normal(DRAWS))
    drawn = runs * _drawn(now, figure.quantile, 2) / _drawn(then, figure.quantile, 1)
    low, high = (float(q) for q in np.quantile(drawn, (SURE, 1 - SURE)))
    if ratio < 1 - TOLERANCE and high < 1:
        return Decision("slower", ratio, low, high)
    if low > 1 - figure.seen:
        return Decision("not slower", ratio, low, high)
    return Decision("cannot tell", ratio, low, high, "the slices spread too much; repeat on a calm machine")


def _finding(found: Mapping[str, Decision]) -> Finding:
    worst = min(found.values(), key=lambda one: 0.0 if one.ratio is None else one.ratio)
    slower = [one for one in found.values() if one.verdict == "slower"]
    if slower:
        worst = min(slower, key=lambda one: one.ratio or 0.0)
    elif any(one.verdict == "cannot tell" for one in found.values()):
        return Missing(next(one.why for one in found.values() if one.verdict == "cannot tell"))
    assert worst.ratio is not None and worst.low is not None and worst.high is not None
    return Measure((worst.low, worst.ratio, worst.high), worst.ratio)


def _drawn(values: Sequence[float], quantile: float, seed: int) -> NDArray[np.float64]:
    """The figures of runs that are put together of blocks, drawn with replacement."""
    dice = np.random.default_rng(seed)
    blocks = np.array_split(np.asarray(values, np.float64), BLOCKS)
    size = min(map(len, blocks))
    rows = np.stack([block[:size] for block in blocks])
    picks = dice.integers(0, BLOCKS, (DRAWS, BLOCKS))
    drawn: NDArray[np.float64] = np.quantile(rows[picks].reshape(DRAWS, -1), quantile, axis=1)
    return drawn
