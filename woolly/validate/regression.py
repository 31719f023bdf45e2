"""regression: this run beside a saved one.

Slower is said only where noise cannot explain it, and not slower only where a loss of twice the tolerance would have
been seen.

Two runs are hours apart, so that nothing can alternate between them. What can be done is to compare like with like:
only slices in the same state of the machine that others did not disturb. Their medians are divided, and the interval
of that ratio comes from drawing blocks of neighbouring slices again and again: neighbours share what drifts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from woolly.errors import NotFoundError, RequestError, printable
from woolly.validate.found import Found
from woolly.validate.gates import Finding, Measure, Missing
from woolly.validate.speed import CALM

TOLERANCE = 0.05
FEWEST = 8  # slices of each run
BLOCKS = 8
DRAWS = 2000
SURE = 0.01  # the share of draws outside of the interval, at each end
FIGURES = ("tokens_per_s", "prompt_per_s")


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
            if not all(isinstance(one[name], int | float) for name in (*FIGURES, "foreign")):
                raise TypeError
        str(saved["metadata"]["timestamp"])
    except OSError as error:
        raise NotFoundError(f"{printable(path)} cannot be read: {printable(error.strerror)}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RequestError(
            f"{printable(path)} is no report with a speed in it", suggestion="make one with --save", param="--compare"
        ) from None
    assert isinstance(saved, dict)
    return saved


def decide(then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], figure: str) -> Decision:
    """Whether a figure is lower than it was."""
    by_state = [
        [[float(row[figure]) for row in rows if _calm(row, state)] for rows in (then, now)] for state in ("near", "far")
    ]
    a, b = max(by_state, key=lambda both: min(map(len, both)))
    if min(len(a), len(b)) >= FEWEST:
        return compare(a, b)
    return Decision("cannot tell", why=f"fewer than {FEWEST} calm slices in the same state of the machine")


def compare(then: Sequence[float], now: Sequence[float]) -> Decision:
    """Two runs of slices, each in the order in which they were taken."""
    a, b = _drawn(then, 1), _drawn(now, 2)
    ratio = float(np.median(now) / np.median(then))
    low, high = (float(q) for q in np.quantile(b / a, (SURE, 1 - SURE)))
    if ratio < 1 - TOLERANCE and high < 1:
        return Decision("slower", ratio, low, high)
    if ratio >= 1 - TOLERANCE and low > 1 - 2 * TOLERANCE:
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


def _calm(row: Mapping[str, Any], state: str) -> bool:
    return row.get("state") == state and row["foreign"] <= CALM and row.get("tokens_per_s", 0) > 0


def _drawn(values: Sequence[float], seed: int) -> Any:
    """Medians of runs that are put together of blocks, drawn with replacement."""
    dice = np.random.default_rng(seed)
    blocks = np.array_split(np.asarray(values, np.float64), min(BLOCKS, len(values)))
    size = min(map(len, blocks))
    rows = np.stack([block[:size] for block in blocks])
    picks = dice.integers(0, len(rows), (DRAWS, len(rows)))
    return np.median(rows[picks].reshape(DRAWS, -1), axis=1)
