"""A good server holds its gates; each bad one fails the gate that is there for it, for that reason and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.conftest import real_server
from tests.tiny import tiny
from tests.validate.conftest import Validate
from tests.validate.serving import Simulation
from woolly.validate.gates import GATES, exit_code

SPEED = ("--test", "inference_speed")
QUALITY = ("--test", "quality_validation")
LONG_RUN = ("--test", "reliability")
FEW = {"max_tokens": 8, "prompt_lengths": [16], "rounds": 1, "batch_sizes": [1], "slices": 1, "slice_tokens": 2}
# Whether these hold depends on the machine.
TIMED = {gate.name for gate in GATES if gate.unit in ("tokens/s", "ms", "s", "MB/h")} | {"honest_stream"}


def test_a_good_server_holds_every_gate(simulation: Simulation, validate: Validate) -> None:
    done = validate("--url", simulation.servers["good"].url, *SPEED, *QUALITY, *LONG_RUN, "--test", "load_testing")
    assert done.failed() == {}
    assert done.code == 0
    measured = {name for name, state in done.states().items() if state == "pass"}
    assert {"sustained_speed", "same_text", "memory_growth", "error_rate", "honest_work"} <= measured


def test_a_server_that_answers_from_canned_text_is_caught_by_the_reference(
    simulation: Simulation, validate: Validate
) -> None:
    done = validate("--url", simulation.servers["canned"].url, *SPEED, *QUALITY)
    assert done.code == 1
    assert list(done.failed()) == ["same_text"]
    assert "the reference says" in done.failed()["same_text"]


def test_a_server_that_streams_everything_at_the_end_is_caught_by_its_silence(
    simulation: Simulation, validate: Validate
) -> None:
    done = validate("--url", simulation.servers["at_the_end"].url, *SPEED, *QUALITY)
    assert done.code == 1
    assert list(done.failed()) == ["honest_stream"]


def test_a_server_that_invents_its_counts_is_caught_by_the_tokenizer(
    simulation: Simulation, validate: Validate
) -> None:
    done = validate("--url", simulation.servers["invented"].url, *SPEED, *QUALITY)
    assert done.code == 1
    assert list(done.failed()) == ["honest_counts"]
    assert "was counted as" in done.failed()["honest_counts"]


def test_a_server_that_is_too_slow_fails_the_gates_of_speed(simulation: Simulation, validate: Validate) -> None:
    done = validate("--url", simulation.servers["slow"].url, *SPEED, inference_speed=FEW)
    assert done.code == 1
    assert set(done.failed()) == {"sustained_speed", "expected_speed", "phase_speed", "token_time"}


def test_a_slow_server_holds_the_gates_of_an_early_phase(simulation: Simulation, validate: Validate) -> None:
    done = validate("--url", simulation.servers["slow"].url, *SPEED, "--gate", "phase3", inference_speed=FEW)
    assert done.code == 0
    speed = next(row for row in done.report["gates"] if row["name"] == "phase_speed")
    assert speed["threshold"] == 5.0


def test_a_server_that_leaks_is_caught_by_its_own_memory(simulation: Simulation, validate: Validate) -> None:
    done = validate("--url", simulation.servers["leaking"].url, *LONG_RUN)
    assert done.code == 1
    assert list(done.failed()) == ["memory_growth"]
    assert "MB in" in done.failed()["memory_growth"]


def test_our_own_server_is_started_judged_and_ended(validate: Validate) -> None:
    """In the time of this machine, which may be slow: all but speed is right, and speed is told."""
    categories = ("inference_speed", "quality_validation", "ole", "load_testing", "reliability", "model_loading")
    words = [word for name in categories for word in ("--test", name)]
    done = validate(*words, inference_speed=FEW, load_testing={"duration": 0.1}, reliability={"duration": 0.5})
    assert set(done.failed()) <= TIMED
    assert {name for name, state in done.states().items() if state != "pass"} <= TIMED
    assert done.code == exit_code(list(done.states().values()))
    assert done.report["metadata"]["server"] == "started for this run"
    assert done.report["process"]["peak_rss"] > 1e6
    assert next(row["value"] for row in done.report["gates"] if row["name"] == "cold_start") > 0
    assert done.report["tests"]["model_loading"]["success_rate"] == 1.0


def test_a_server_that_runs_is_judged_and_its_process_found_by_its_port(
    validate: Validate, tmp_path_factory: pytest.TempPathFactory
) -> None:
    often = {"sample_interval": 0.01}
    with real_server(tmp_path_factory, "running", context=2048, limits={}) as live:
        url, file = f"http://127.0.0.1:{live.port}", live.app.config.folders[0] / "running.gguf"
        done = validate("--url", url, "--test", "ole", of=file, resource_utilization=often)
    states = done.states()
    assert states["ole_connects"] == "pass"
    assert states["cache_hits"] in ("pass", "fail")  # by how long its answers to chance questions are
    assert done.report["process"]["peak_rss"] > 1e6


def test_a_model_without_a_chat_template_is_not_asked_to_chat(
    simulation: Simulation, validate: Validate, tmp_path: Path
) -> None:
    plain, server = tiny(tmp_path / "no-chat.gguf", meta={"tokenizer.chat_template": None}), simulation.servers["good"]
    done = validate("--url", server.url, "--test", "ole", of=plain)
    assert done.states() == {"cache_hits": "does not apply", "ole_connects": "pass"}
    assert done.code == 0
    assert not [one for one in server.asked if "chat" in one]


def test_a_peer_is_compared_in_turn(simulation: Simulation, validate: Validate) -> None:
    ours, theirs = (simulation.servers[kind].url for kind in ("good", "slow"))
    done = validate("--url", ours, "--test", "comparative", "--against", theirs, inference_speed={"slice_tokens": 3})
    (gate,) = done.report["gates"]
    assert gate["name"] == "speed_beside_peer"
    assert done.report["tests"]["comparative"]["decode"]["performance_ratio"]["median"] > 5
