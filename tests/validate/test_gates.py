"""The table of gates, and verdicts on figures."""

from __future__ import annotations

import pytest

from woolly.validate.categories.reliability import growth
from woolly.validate.gates import GATES, Measurement, NotMeasured, exit_code, judge, judge_all
from woolly.validate.process import ProcessUsage
from woolly.validate.settings import CATEGORIES

BY_NAME = {gate.name: gate for gate in GATES}


def test_all_gates_of_the_founding_documents_are_there_once_each_in_a_category_of_the_suite() -> None:
    ids = [gate.id for gate in GATES]
    assert {f"G{number}" for number in range(1, 25)} <= set(ids)
    assert len(set(ids)) == len(ids) == len(BY_NAME)
    assert {gate.category for gate in GATES} == set(CATEGORIES)
    assert all(gate.how and gate.unit and 1 <= gate.phase <= 5 for gate in GATES)


def test_a_gate_holds_at_its_threshold_and_fails_beyond() -> None:
    speed, time = BY_NAME["sustained_speed"], BY_NAME["token_time"]
    assert judge(speed, Measurement((15.0,))).state == "pass"
    assert judge(speed, Measurement((14.9,))).state == "fail"
    assert judge(time, Measurement((100.0,))).state == "pass"
    assert judge(time, Measurement((100.1,))).state == "fail"


def test_a_verdict_has_median_runs_and_quartiles() -> None:
    verdict = judge(BY_NAME["sustained_speed"], Measurement((10.0, 20.0, 30.0, 40.0, 50.0)))
    assert (verdict.value, verdict.runs, verdict.spread) == (30.0, 5, (20.0, 40.0))


def test_a_gate_that_nobody_measured_is_told() -> None:
    (verdict,) = judge_all({}, ["regression"], 5)
    assert (verdict.state, verdict.value) == ("not measured", None)
    assert judge_all({}, ["regression"], 4) == []


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["pass", "pass"], 0),
        (["pass", "does not apply"], 0),
        (["pass", "fail", "not measured"], 1),
        (["pass", "not measured"], 2),
        (["does not apply"], 2),
        ([], 2),
    ],
)
def test_the_exit_code_says_holds_fails_or_could_not_be_measured(states: list[str], code: int) -> None:
    assert exit_code(states) == code


def usages(rss: list[int], apart_s: float = 10.0) -> list[ProcessUsage]:
    return [ProcessUsage(number * apart_s, one, 0.0, 1, 1) for number, one in enumerate(rss)]


def test_memory_that_only_rises_at_the_beginning_is_no_leak() -> None:
    finding = growth(usages([100_000_000 + min(number, 20) * 1_000_000 for number in range(100)]))
    assert isinstance(finding, Measurement) and finding.runs == (0.0,)


def test_memory_that_rises_by_little_all_the_time_is_a_leak() -> None:
    finding = growth(usages([100_000_000 + number * 100_000 for number in range(360)]))  # 36 MB in an hour
    assert isinstance(finding, Measurement) and 25 < finding.runs[0] < 36


def test_memory_that_was_hardly_looked_at_tells_nothing() -> None:
    finding = growth(usages([1] * 5))
    assert isinstance(finding, NotMeasured) and finding.applies
