"""What was measured as data for JSON: plain dicts, numbers rounded to what they are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from woolly.bench.against import Against, Compared, Comparison
from woolly.bench.kernels import Case, Product
from woolly.bench.machine import Figure, Limits
from woolly.bench.model import Speed
from woolly.bench.profile import Profile, Row
from woolly.bench.ratios import Ratio
from woolly.bench.state import State


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of one model."""

    model: str
    architecture: str
    isa: str
    threads: int
    kv: str
    processor: str
    load_average: float
    machine: State  # by a buffer of its own, when everything else was done
    touch: float  # bytes a second of the first touch of memory, beside which loading is to be seen
    load_s: float
    file_bytes: int
    packed_bytes: int
    huge_bytes: int
    peak_rss: int
    turn_s: float
    speeds: tuple[Speed, ...]
    profiles: dict[str, Profile]
    comparison: Comparison | None
    foreign: float  # the share of the processors that others used during the tests

    @property
    def noisy(self) -> bool:
        compared = self.comparison.tests if self.comparison is not None else ()
        return self.foreign > 0.05 or any(one.noisy for one in compared)


def report_data(report: Report) -> dict[str, Any]:
    """The JSON of `woolly bench MODEL --json`."""
    data: dict[str, Any] = {
        "machine": {
            **state_data(report.machine),
            "isa": report.isa,
            "threads": report.threads,
            "processor": report.processor,
            "touch_gb_s": _round(report.touch / 1e9),
            "load_average": report.load_average,
            "foreign_share": _round(report.foreign),
        },
        "model": report.model,
        "architecture": report.architecture,
        "kv": report.kv,
        "load_s": _round(report.load_s),
        "load_gb_s": _round(report.file_bytes / report.load_s / 1e9),
        "file_mb": _round(report.file_bytes / 1e6),
        "packed_mb": _round(report.packed_bytes / 1e6),
        "huge_mb": _round(report.huge_bytes / 1e6),
        "peak_rss_mb": _round(report.peak_rss / 1e6),
        "turn_us": _round(report.turn_s * 1e6),
        "tests": [_speed_data(speed) for speed in report.speeds],
    }
    if report.profiles:
        data["profile"] = {name: _profile_data(profile) for name, profile in report.profiles.items()}
    if report.comparison is not None:
        data["peer"] = {
            "version": report.comparison.version,
            "load_s": {name: _round(s) if s is not None else None for name, s in report.comparison.load_s.items()},
        }
        data["ratios"] = {one.test.name: _compared_data(one) for one in report.comparison.tests}
    return data | {"noisy": report.noisy}


def state_data(state: State) -> dict[str, Any]:
    return {"read_gb_s": _round(state.read_gb_s), "barrier_ns": _round(state.barrier_ns), "state": state.place}


def _speed_data(speed: Speed) -> dict[str, Any]:
    data: dict[str, Any] = {
        "test": speed.test.name,
        "tokens_per_s": {
            "median": _round(speed.median),
            "best": _round(speed.best),
            "runs": [_round(rate) for rate in speed.rates],
        },
        "before": state_data(speed.before),
        "after": state_data(speed.after),
    }
    if speed.share_of_read is not None:
        data["share_of_read"] = _round(speed.share_of_read)
    return data


def _compared_data(compared: Compared) -> dict[str, Any]:
    peer = compared.peer
    return {
        **_ratio_data(peer.ratio),
        "peer": peer.setting,
        "noise": _ratio_data(compared.noise),
        "noisy": compared.noisy,
        "settings": {one.setting: _against_data(one) for one in compared.settings},
    }


def _against_data(one: Against) -> dict[str, Any]:
    return {
        **_ratio_data(one.ratio),
        "best": _round(one.best_ratio),
        "ours_tokens_per_s": {"median": _round(one.ours.median), "best": _round(one.ours.best)},
        "theirs_tokens_per_s": {"median": _round(one.theirs.median), "best": _round(one.theirs.best)},
        "before": state_data(one.before),
        "after": state_data(one.after),
        "slices": [
            {
                "ours_s": [_round(s) for s in row.a],
                "theirs_s": [_round(s) for s in row.b],
                "foreign": _round(row.foreign),
            }
            for row in one.quadruples
        ],
    }


def _ratio_data(ratio: Ratio) -> dict[str, Any]:
    return {
        "median": _round(ratio.median),
        "quartiles": [_round(value) for value in ratio.quartiles],
        "count": ratio.count,
        "wins": ratio.wins,
    }


def _profile_data(profile: Profile) -> dict[str, Any]:
    return {
        "rows": profile.rows,
        "ms": _round(profile.seconds * 1e3),
        "neither_ms": _round(profile.neither * 1e3),
        "kinds": [_row_data(row) for row in profile.kinds],
        "instructions": [_row_data(row) for row in profile.instructions],
    }


def _row_data(row: Row) -> dict[str, Any]:
    return {
        "what": row.what,
        "count": row.count,
        "work_us": _round(row.work * 1e6),
        "wait_us": _round(row.wait * 1e6),
        "memory_us": _round(row.memory * 1e6),
        "arithmetic_us": _round(row.arithmetic * 1e6),
        "bytes": row.nbytes,
        "macs": row.macs,
    }


def limits_data(limits: Limits) -> dict[str, Any]:
    """The JSON of `woolly bench machine --json`."""
    return {
        "machine": {
            **state_data(limits.state),
            "threads": limits.threads,
            "processor": limits.processor,
            "clock_ghz": _round(limits.clock_hz / 1e9),
            "touch_gb_s": _round(limits.touch / 1e9),
            "huge_mb": _round(limits.huge_bytes / 1e6),
            "load_average": limits.load,
        },
        "read": [
            {"threads": row.threads, "pages": "huge" if row.huge else "small", "gb_s": _figure_data(row.rate)}
            for row in limits.reading
        ],
        "multiply": [
            {
                "isa": row.isa,
                "what": row.what,
                "kind": "int8" if row.integer else "f32",
                "threads": row.threads,
                "gmac_s": _figure_data(row.rate),
                "mac_per_cycle": _round(row.per_cycle(limits.clock_hz)),
            }
            for row in limits.multiplying
        ],
    }


def _figure_data(figure: Figure) -> dict[str, Any]:
    return {
        "median": _round(figure.median / 1e9),
        "best": _round(figure.best / 1e9),
        "runs": [_round(rate / 1e9) for rate in figure.runs],
    }


def product_data(product: Product, clock_hz: float) -> dict[str, Any]:
    """A product of `woolly bench kernels --json`."""
    return {
        "format": product.form,
        "isa": product.isa,
        "rows": product.rows,
        "us": _round(product.seconds * 1e6),
        "gb_s": _round(product.bytes_s / 1e9),
        "share_of_read": _round(product.share_of_read),
        "mac_per_cycle": _round(product.macs_per_cycle(clock_hz)),
        "share_of_peak": _round(product.share_of_peak),
    }


def case_data(case: Case) -> dict[str, Any]:
    """A case of `woolly bench kernels --json`."""
    return {
        "case": case.name,
        "us": {isa: _round(seconds * 1e6) for isa, seconds in case.seconds.items()},
        "times_scalar": {isa: _round(case.times_scalar(isa)) for isa in case.seconds},
    }


def _round(x: float) -> float:
    """Four digits: no figure here is worth more."""
    return float(f"{x:.4g}")
