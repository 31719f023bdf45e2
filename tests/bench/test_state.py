"""bench.state: who else is busy, told from a made-up /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from woolly.bench.state import State, Watch, huge_pages, processor


def write(root: Path, *, busy: int, idle: int, stolen: int = 0, own: int = 0, peer: int = 0) -> None:
    for name, ticks in (("self", own), ("77", peer)):
        (root / name).mkdir(exist_ok=True)
        (root / name / "stat").write_text(f"1 (a ) name) S {'0 ' * 10}{ticks} 0 0 0\n")
    (root / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 1 2 3\n")


@pytest.mark.parametrize(
    ("after", "share"),
    [
        ({"busy": 150, "idle": 150, "own": 50}, 0.0),
        ({"busy": 150, "idle": 150, "own": 20}, 0.3),
        ({"busy": 150, "idle": 150, "own": 20, "peer": 30}, 0.0),
        ({"busy": 140, "idle": 150, "own": 40, "stolen": 10}, 0.1),
        ({"busy": 100, "idle": 200}, 0.0),
        ({"busy": 100, "idle": 100}, 0.0),
    ],
)
def test_others_are_what_was_busy_or_stolen_less_our_own(tmp_path: Path, after: dict[str, int], share: float) -> None:
    write(tmp_path, busy=100, idle=100)
    watch = Watch([77], root=tmp_path)
    watch.begin()
    write(tmp_path, **after)
    assert watch.foreign() == pytest.approx(share)


def test_a_system_that_tells_nothing_has_no_others(tmp_path: Path) -> None:
    watch = Watch([1], root=tmp_path)
    assert watch.foreign() == 0.0
    assert huge_pages(root=tmp_path) == 0
    assert processor(root=tmp_path)


def test_a_process_that_is_gone_has_used_nothing(tmp_path: Path) -> None:
    write(tmp_path, busy=100, idle=100)
    watch = Watch([12345], root=tmp_path)
    write(tmp_path, busy=200, idle=100)
    assert watch.foreign() == 1.0


def test_cores_are_near_when_a_barrier_is_cheap() -> None:
    assert State(35.0, 37.0).state == "near"
    assert State(300.0, 62.0).state == "far"


def test_the_processor_tells_its_name(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: A Fast One\nmodel name\t: Another\n")
    assert processor(root=tmp_path) == "A Fast One"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU part\t: 0xd0b\n\nModel\t\t: A Small One Rev 1.0\n")
    assert processor(root=tmp_path) == "A Small One Rev 1.0"
