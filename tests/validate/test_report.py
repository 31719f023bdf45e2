"""The report: Markdown and HTML of the JSON alone, with nothing in them that acts or is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.validate.conftest import Validate
from tests.validate.serving import Simulation
from woolly.errors import FileError
from woolly.validate.report.charts import Series, chart
from woolly.validate.report.files import write_report
from woolly.validate.report.markdown import markdown
from woolly.validate.report.page import html

HOSTILE = '<script>alert(1)</script> | "x"\x1b[31m'


def report(why: str = "") -> dict[str, Any]:
    gate = {
        "id": "G1", "name": "sustained_speed", "category": "inference_speed", "phase": 4, "value": 12.5, "sense": ">=",
        "threshold": 15.0, "unit": "tokens/s", "state": "fail", "pass": False, "how": "by the clock", "runs": 5,
        "spread": [12.0, 13.0], "why": why,
    }  # fmt: skip
    machine = {
        "processor": "P", "cores": 2, "instruction_set": "avx2", "state": "near", "barrier_ns": 80.0, "read_gb_s": 30.0,
        "load_average": 0.5,
    }  # fmt: skip
    return {
        "metadata": {"timestamp": "2026-01-02T03:04:05+00:00", "version": "1.0.0", "config": {}, "server": "http://x"},
        "machine": machine | {"after": machine},
        "model": {"name": why or "Tiny", "file": "tiny.gguf", "sha256": "ab", "size_bytes": 1000},
        "gates": [gate, gate | {"id": "G2", "state": "not measured", "value": None, "runs": 0, "spread": None}],
        "process": {"memory": [{"at_s": 0.0, "rss": 1e8}, {"at_s": 1.0, "rss": 1e8}]},
        "tests": {
            "inference_speed": {
                "detailed_measurements": {"gaps_ms": [1.0, 2.0, 3.0]},
                "single_token_latency": {"first_token_ms": {"16": {"cold_ms": [5.0], "warm_ms": [2.0]}}},
                "slices": [{"tokens_per_s": 10.0}],
            },
            "load_testing": {
                "levels": [{"users": 1, "latency_ms": {"p50": 1, "p95": 2, "p99": 3}, "tokens_per_second": 4}]
            },
        },
    }


def test_markdown_has_a_row_for_each_gate_with_value_threshold_and_spread() -> None:
    text = markdown(report())
    assert "| G1 | sustained speed | 12.5 tokens/s | at least 15 | 5 (12 to 13) | **fails** |" in text
    assert "SHA-256 `ab`" in text


def test_a_machine_that_others_used_is_told() -> None:
    busy = report()
    busy["machine"]["foreign_share"] = 0.4
    for text in (markdown(busy), html(busy)):
        assert "others used 40% of the processors" in text
    assert "others used" not in markdown(report())


def test_the_page_has_all_charts_and_loads_nothing() -> None:
    text = html(report())
    assert text.count("<svg") == 6
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|<link|<img|src=|href=|url\(|@import", text)


def test_what_a_server_says_cannot_act_in_the_page() -> None:
    text = html(report(HOSTILE))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in markdown(report(HOSTILE))


def test_a_report_without_any_test_is_still_a_page() -> None:
    empty = report() | {"tests": {}, "gates": [], "process": {"memory": []}}
    assert "<svg" not in html(empty)
    assert "no gate was asked for" in markdown(empty)


def test_a_chart_of_one_point_and_of_zeros_can_be_drawn() -> None:
    assert "<circle" in chart("t", "x", "y", [Series("", ((1.0, 0.0),))])
    assert chart("t", "x", "y", [Series("", ())]) == ""


def test_the_files_are_named_by_time_and_the_page_is_that_of_the_json(tmp_path: Path) -> None:
    paths = write_report(report(), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [f"results_20260102_030405.{ending}" for ending in ("json", "md", "html")]
    assert paths[2].read_text() == html(json.loads(paths[0].read_text()))
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="--output"):
        write_report(report(), tmp_path / "file")


def test_the_json_has_the_documented_keys(simulation: Simulation, validate: Validate) -> None:
    few = {"rounds": 1, "slices": 1}
    done = validate("--url", simulation.servers["good"].url, "--test", "inference_speed", inference_speed=few)
    assert set(done.report) == {"metadata", "machine", "model", "process", "gates", "tests"}
    assert {"timestamp", "version", "config"} <= set(done.report["metadata"])
    speed = done.report["tests"]["inference_speed"]
    keys = "single_token_latency sustained_throughput timeout_analysis performance_summary detailed_measurements"
    assert set(keys.split()) <= set(speed)
    for row in done.report["gates"]:
        assert {"id", "value", "threshold", "pass", "how", "runs", "spread"} <= set(row)
    assert len(done.report["model"]["sha256"]) == 64
