"""A good server holds its gates; each bad one fails the gate that is there for it, for that reason and for no other."""

from __future__ import annotations

from pathlib import Path

from tests.tiny import tiny
from tests.validate.conftest import Validate, serving

SPEED = ("--test", "inference_speed")
QUALITY = ("--test", "quality_validation")
LONG_RUN = ("--test", "reliability")
FEW = {"max_tokens": 8, "rounds": 1, "batch_sizes": [1], "slices": 1, "slice_tokens": 2}


def test_a_good_server_holds_every_gate(model: Path, validate: Validate) -> None:
    with serving("good", model) as url:
        done = validate("--url", url, *SPEED, *QUALITY, *LONG_RUN, "--test", "load_testing")
    assert done.failed() == {}
    assert done.code == 0
    measured = {name for name, state in done.states().items() if state == "pass"}
    assert {"sustained_speed", "same_text", "memory_growth", "error_rate", "honest_work"} <= measured


def test_a_server_that_answers_from_canned_text_is_caught_by_the_reference(model: Path, validate: Validate) -> None:
    with serving("canned", model) as url:
        done = validate("--url", url, *SPEED, *QUALITY)
    assert done.code == 1
    assert list(done.failed()) == ["same_text"]
    assert "the reference says" in done.failed()["same_text"]


def test_a_server_that_streams_everything_at_the_end_is_caught_by_its_silence(model: Path, validate: Validate) -> None:
    with serving("at_the_end", model) as url:
        done = validate("--url", url, *SPEED, *QUALITY)
    assert done.code == 1
    assert list(done.failed()) == ["honest_stream"]


def test_a_server_that_invents_its_counts_is_caught_by_the_tokenizer(model: Path, validate: Validate) -> None:
    with serving("invented", model) as url:
        done = validate("--url", url, *SPEED, *QUALITY)
    assert done.code == 1
    assert list(done.failed()) == ["honest_counts"]
    assert "was counted as" in done.failed()["honest_counts"]


def test_a_server_that_is_too_slow_fails_the_gates_of_speed(model: Path, validate: Validate) -> None:
    with serving("slow", model) as url:
        done = validate("--url", url, *SPEED, inference_speed=FEW)
    assert done.code == 1
    slow = {"sustained_speed", "expected_speed", "phase_speed", "token_time"}
    assert slow <= set(done.failed()) <= slow | {"first_token", "first_token_short"}  # a busy machine is slow there too


def test_a_slow_server_holds_the_gates_of_an_early_phase(model: Path, validate: Validate) -> None:
    with serving("slow", model) as url:
        done = validate("--url", url, *SPEED, "--gate", "phase3", inference_speed=FEW)
    assert done.code == 0
    speed = next(row for row in done.report["gates"] if row["name"] == "phase_speed")
    assert speed["threshold"] == 5.0


def test_a_server_that_leaks_is_caught_by_its_own_memory(model: Path, validate: Validate) -> None:
    with serving("leaking", model) as url:
        done = validate("--url", url, *LONG_RUN)
    assert done.code == 1
    assert list(done.failed()) == ["memory_growth"]
    assert "MB in" in done.failed()["memory_growth"]


def test_our_own_server_is_started_judged_and_ended(model: Path, validate: Validate) -> None:
    categories = ("inference_speed", "quality_validation", "ole", "load_testing", "reliability")
    done = validate(*(word for name in categories for word in ("--test", name)))
    assert done.failed() == {}
    assert done.code == 0
    assert done.states()["clean_log"] == "pass"
    assert done.report["metadata"]["server"] == "started for this run"


def test_a_model_without_a_chat_template_is_not_asked_to_chat(validate: Validate, tmp_path: Path) -> None:
    plain = tiny(tmp_path / "no-chat.gguf", meta={"tokenizer.chat_template": None})
    done = validate("--test", "ole", of=plain)
    assert done.states() == {"cache_hits": "does not apply", "ole_connects": "pass"}
    assert done.code == 0


def test_a_cold_start_and_a_reload_are_timed(validate: Validate) -> None:
    done = validate("--test", "model_loading")
    (gate,) = done.report["gates"]
    assert 0 < gate["value"] < 60
    assert done.report["tests"]["model_loading"]["success_rate"] == 1.0


def test_a_peer_is_compared_in_turn(model: Path, validate: Validate) -> None:
    with serving("good", model) as ours, serving("slow", model) as theirs:
        done = validate(
            "--url", ours, "--test", "comparative", "--against", theirs, inference_speed={"slice_tokens": 3}
        )
    (gate,) = done.report["gates"]
    assert gate["name"] == "speed_beside_peer"
    assert done.report["tests"]["comparative"]["decode"]["performance_ratio"]["median"] > 5
