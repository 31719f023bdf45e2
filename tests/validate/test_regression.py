"""A loss of a tenth is found, and noise is not taken for one: how often the decision is wrong, simulated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.validate.conftest import Done, Validate
from tests.validate.serving import Simulation
from woolly.errors import NotFoundError, RequestError
from woolly.validate.categories.regression import FIGURES, compare, decide, measure, read_saved

REPEATS, SOAK_REPEATS = 100, 1000
SLICES = 64


def steady(rng: np.random.Generator) -> Any:
    """Slices that spread by four in a hundred."""
    return np.exp(0.04 * rng.standard_normal(SLICES))


def drifting(rng: np.random.Generator) -> Any:
    """What the machine gives wanders by a few in a hundred."""
    return np.exp(np.cumsum(0.002 * rng.standard_normal(SLICES)) + 0.02 * rng.standard_normal(SLICES))


def disturbed(rng: np.random.Generator) -> Any:
    """Every sixth slice or so is cut to less by a neighbour."""
    return np.exp(0.03 * rng.standard_normal(SLICES)) * np.where(rng.random(SLICES) < 0.15, rng.uniform(0.4, 0.9), 1)


def verdicts(noise: Any, loss: float, name: str, repeats: int = REPEATS) -> list[str]:
    """Of runs that differ as runs do, beside the noise of their slices."""
    rng, figure = np.random.default_rng(5), FIGURES[name]

    def run(speed: float) -> Any:
        return speed * np.exp(figure.spread * rng.standard_normal()) * noise(rng)

    return [compare(run(400), run(400 * (1 - loss)), figure).verdict for _ in range(repeats)]


NOISES = pytest.mark.parametrize("noise", [steady, drifting, disturbed])
FIGURE_LOSSES = pytest.mark.parametrize(("name", "loss"), [("prompt_per_s", 0.10), ("tokens_per_s", 0.15)])


ROUNDS = pytest.mark.parametrize("repeats", [REPEATS, pytest.param(SOAK_REPEATS, marks=pytest.mark.soak)])


@NOISES
@FIGURE_LOSSES
@ROUNDS
def test_a_loss_is_found(noise: Any, name: str, loss: float, repeats: int) -> None:
    decided = verdicts(noise, loss, name, repeats)
    assert decided.count("slower") >= 0.9 * repeats
    assert decided.count("not slower") <= 0.02 * repeats


@NOISES
@FIGURE_LOSSES
@ROUNDS
def test_the_same_speed_is_not_called_slower(noise: Any, name: str, loss: float, repeats: int) -> None:
    decided = verdicts(noise, 0.0, name, repeats)
    assert decided.count("slower") <= 0.02 * repeats
    assert decided.count("not slower") >= 0.8 * repeats


def test_noise_that_hides_everything_is_said_to_do_so() -> None:
    def wild(rng: np.random.Generator) -> Any:
        return np.exp(0.8 * rng.standard_normal(SLICES))

    assert verdicts(wild, 0.0, "tokens_per_s").count("cannot tell") >= 0.8 * REPEATS


def rows(rate: float, foreign: float = 0.0, count: int = SLICES, speed: float = 1.0) -> list[dict[str, Any]]:
    """speed: of the machine, by what it was."""
    one = {"tokens_per_s": rate * speed, "prompt_per_s": 10 * rate * speed, "foreign": foreign}
    return [one | {"memory_s": 0.002 / speed, "clock_ghz": 3 * speed} for _ in range(count)]


def test_a_machine_that_gives_less_is_not_taken_for_a_loss() -> None:
    for name in FIGURES:
        decision = decide(rows(400), rows(400, speed=0.6), name)
        assert decision.verdict == "not slower" and decision.ratio == pytest.approx(1.0)
        assert decide(rows(400), rows(340, speed=1.5), name).verdict == "slower"


def test_slices_that_others_disturbed_are_not_compared() -> None:
    assert decide(rows(400), rows(300, foreign=0.5), "tokens_per_s").verdict == "cannot tell"
    assert decide(rows(400), rows(300, foreign=0.5) + rows(400), "tokens_per_s").verdict == "not slower"


def saved(rate: float = 400, digest: str = "ab", processor: str = "P") -> dict[str, Any]:
    return {
        "metadata": {"timestamp": "2026-01-01T00:00:00+00:00"},
        "machine": {"processor": processor},
        "model": {"sha256": digest},
        "tests": {"inference_speed": {"slices": rows(rate)}},
    }


@pytest.mark.parametrize("other", [{"digest": "cd"}, {"processor": "Q"}])
def test_a_run_of_another_model_or_machine_is_no_baseline(other: dict[str, str]) -> None:
    result = measure({"slices": rows(400)}, saved(**other), "P", "ab")
    assert "of another" in result.details["why"]


def test_the_worse_of_prompt_and_decode_counts() -> None:
    now = [row | {"prompt_per_s": 3000} for row in rows(400)]
    finding = measure({"slices": now}, saved(), "P", "ab").findings["regression"]
    assert getattr(finding, "value", None) == pytest.approx(0.75)


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_saved(str(tmp_path / "none.json"))
    still = json.dumps(saved()).replace('"clock_ghz": 3.0', '"clock_ghz": 0.0')
    for text in ("", "[]", "{}", '{"tests": {"inference_speed": {"slices": [{}]}}}', "[" * 100_000, still):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(RequestError, match="no report"):
            read_saved(str(tmp_path / "bad.json"))


def test_a_saved_run_can_be_compared_with(simulation: Simulation, validate: Validate, tmp_path: Path) -> None:
    few = {"max_tokens": 8, "rounds": 1, "batch_sizes": [1], "slices": 24, "slice_tokens": 4}
    saved_path, url = tmp_path / "before.json", simulation.servers["good"].url

    def compared() -> Done:
        words = ("--test", "regression", "--compare", str(saved_path))
        return validate("--url", url, *words, inference_speed=few)

    validate("--url", url, "--test", "ole", "--save", str(saved_path), inference_speed=few)
    same = compared()
    assert (same.states()["regression"], same.code) == ("pass", 0)
    known = json.loads(saved_path.read_text())
    for row in known["tests"]["inference_speed"]["slices"]:
        row["tokens_per_s"] *= 100
    saved_path.write_text(json.dumps(known))
    slower = compared()
    assert slower.report["tests"]["regression"]["tokens_per_s"]["verdict"] == "slower"
    assert (list(slower.failed()), slower.code) == (["regression"], 1)
