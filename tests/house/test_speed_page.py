"""docs/speed.md, its charts and the README's table show the measured figures, and the tool that makes them works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import speed  # noqa: E402


def state(place: str = "near") -> dict[str, Any]:
    return {"read_gb_s": 37.0, "barrier_ns": 40.0, "state": place}


def data(model: str, *, isa: str = "avx2", noisy: bool = False) -> dict[str, Any]:
    ratio = {"median": 2.5, "quartiles": [2.4, 2.6], "peer": "repack", "noisy": noisy}
    setting = {"ours_tokens_per_s": {"median": 400.0}, "theirs_tokens_per_s": {"median": 160.0}}
    test = {"tokens_per_s": {"median": 400.0}, "before": state(), "after": state("far")}
    return {
        "machine": state() | {"processor": "P", "isa": isa, "threads": 2, "touch_gb_s": 4.0, "foreign_share": 0.01},
        "model": model,
        "command": f"woolly bench {model}",
        "file_mb": 98.0,
        "load_s": 0.2,
        "peak_rss_mb": 170.0,
        "peer": {"version": "llama-cpp-python 1"},
        "tests": [test | {"test": "pp512"}, test | {"test": "tg64", "share_of_read": 0.8}, test | {"test": "tg64x4"}],
        "ratios": {name: ratio | {"settings": {"repack": setting}} for name in ("pp512", "tg64", "tg64x4")},
    }


def test_the_page_the_charts_and_the_readme_say_what_was_measured() -> None:
    done = subprocess.run([sys.executable, "tools/speed.py", "check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_table_has_a_row_for_each_test_and_stars_what_was_disturbed() -> None:
    lines = speed.table(data("m", noisy=True)).splitlines()[2:]
    assert lines == [
        "| prompt of 512 | 400 | 2.50 (2.40–2.60) * |",
        "| decode | 400 | 2.50 (2.40–2.60) * |",
        "| decode, 4 sequences | 400 | 2.50 (2.40–2.60) * |",
    ]


def test_the_readme_keeps_what_stands_around_its_table() -> None:
    text = f"before\n{speed.BEGIN}old{speed.END}after\n"
    new = speed.readme(text, data("m"))
    assert new.startswith("before\n") and new.endswith("after\n") and "old" not in new and "2.50" in new
    assert speed.readme(new, data("m")) == new


def test_a_bar_of_the_chart_is_as_long_as_a_token_takes() -> None:
    root = ElementTree.fromstring(speed.chart({"a": data("a"), "b": data("b")}))
    bars = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    line = next(root.iter("{http://www.w3.org/2000/svg}line"))
    limit = float(line.attrib["x1"]) - min(
        float(bar.attrib["x"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")
    )
    assert [round(bar / limit, 1) for bar in bars] == [1.2, 3.1, 1.2, 3.1]  # ratios of the data: 1 / 0.8, and 2.5 / 0.8
    assert "2.5 ms" in "".join(root.itertext())


def test_the_page_has_a_table_for_each_set_with_every_model_and_its_command() -> None:
    text = speed.page({isa: {model: data(model, isa=isa) for model in "ab"} for isa in ("avx2", "neon")})
    assert all(text.count(f"`woolly bench {model}`") == 2 for model in "ab") and "80 %" in text
    for isa in ("avx2", "neon"):
        part = text[text.index(f"## {isa}: P, 2 threads") :]
        head, _, *table = (line for line in part.splitlines() if line.startswith("|"))
        assert head.startswith(f"| {isa} |")
        assert [row.split(" | ")[0] for row in table[:6]] == ["| a"] * 3 + ["| b"] * 3


def test_what_was_measured_lies_in_the_folder_of_its_set() -> None:
    assert len(speed.measured()) > 1
    for isa, models in speed.measured().items():
        assert models and {figures["machine"]["isa"] for figures in models.values()} == {isa}
