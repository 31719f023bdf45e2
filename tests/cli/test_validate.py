"""`woolly validate`: what is refused before anything is measured, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--test", "speed"], "there is no category 'speed'; known are inference_speed"),
        (["--gate", "phase6"], "--gate is 'phase6', expected phase1"),
        (["--duration", "soon"], "--duration is 'soon'"),
        (["--duration", "0"], "--duration is '0'"),
        (["--test", "comparative"], "comparative needs a peer; name one with --against"),
        (["--test", "regression"], "regression needs a saved run; name one with --compare"),
        (["--compare", "none.json"], "none.json cannot be read"),
        (["--config", "none.json"], "none.json cannot be read"),
        (["--url", "localhost:8080"], "is no address of a server; as in http://127.0.0.1:8080"),
        (["--url", "http://127.0.0.1:9"], "no server at http://127.0.0.1:9"),
        (["no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_exit_2(woolly: Woolly, words: list[str], says: str) -> None:
    model = [] if words[0][0] != "-" else ["tiny-talker"]
    done = woolly("validate", *model, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("woolly: error: ") and done.stderr.count("\n") == 1
    assert says in done.stderr


def test_a_setting_of_the_wrong_kind_is_refused_with_its_place(woolly: Woolly, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"woolly": {"port": "many"}, "other": 1}')
    done = woolly("validate", "tiny-talker", "--config", str(tmp_path / "c.json"))
    assert done.returncode == 2 and "$.woolly.port" in done.stderr


def test_the_script_of_the_founding_documents_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "run_validation.py"), "--test", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "there is no category 'nothing'" in done.stderr
