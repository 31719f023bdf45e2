"""How a run tells what it does and how long the rest takes, and what its settings are."""

from __future__ import annotations

from pathlib import Path

import pytest

from woolly.validate import run
from woolly.validate.settings import CATEGORIES, QUICK, Settings, read_settings, shortened


def test_the_time_left_follows_from_what_was_foreseen_and_from_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = [0.0], list[str]()
    monkeypatch.setattr(run.time, "monotonic", lambda: now[0])
    progress = run.Progress(lines.append, {"ole": 10.0, "reliability": 20.0})
    progress.begin("ole")
    progress("a step")
    now[0] = 4.0
    progress("another")
    now[0] = 20.0  # twice as long as foreseen, and so will be the rest
    progress.begin("reliability")
    progress("users")
    assert lines == [
        "1 of 2, ole: a step; about 30 s left",
        "1 of 2, ole: another; about 26 s left",
        "2 of 2, reliability: users; about 40 s left",
    ]


def test_a_quick_run_is_foreseen_to_take_at_most_two_minutes() -> None:
    assert sum(run.TABLE[name].seconds(shortened(Settings()).tests) for name in QUICK) <= 120
    assert {*run.TABLE, "regression"} == set(CATEGORIES)


def test_a_file_of_the_older_suite_is_read_and_what_it_does_not_say_has_a_default(tmp_path: Path) -> None:
    path = tmp_path / "validation_config.json"
    path.write_text(
        '{"woolly": {"host": "localhost", "port": 8080, "api_key": "secret"}, "reporting": {"generate_pdf": true},'
        ' "models": [{"name": "m", "path": "m.gguf", "quantization": "Q4_K_M"}],'
        ' "tests": {"load_testing": {"enabled": true, "concurrent_users": [1, 5]}}}'
    )
    settings = read_settings(str(path))
    assert settings.woolly.inference_timeout == 300
    assert settings.tests.load_testing.concurrent_users == (1, 5)
    assert settings.tests.reliability.duration == 3600
    assert "secret" not in str(run.without_key(settings))
