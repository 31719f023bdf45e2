"""cli.main: one line for every error, and an exit code that says what kind it was."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import woolly as package
from tests.cli.conftest import Woolly
from woolly.cli import main as cli
from woolly.cli import tokenize
from woolly.cli.commands import COMMANDS


def one_line(stderr: str) -> bool:
    return stderr.startswith("woolly: error: ") and stderr.count("\n") == 1


def test_the_version_is_the_package_s(started: Woolly) -> None:
    for option in ("--version", "-V"):
        done = started(option)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"woolly {package.__version__}\n", "")


def test_the_help_names_every_command(started: Woolly) -> None:
    done = started("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_no_command_is_wrong_usage_and_shows_the_help(started: Woolly) -> None:
    done = started()
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: woolly" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["xyz\x1b[2J"], "there is no command 'xyz\\x1b[2J'"),
        (["run", "--top-k", "many", "hello there"], "--top-k"),
        (["run", "--no-such", "hello there"], "--no-such"),
        (["run", "--kv", "q4", "hello there"], "--kv"),
        (
            ["run", "--tempreature", "1", "hello there"],
            "`woolly run` has no --tempreature; did you mean --temperature?",
        ),
        (["run", "hello there", "--max-token=5"], "`woolly run` has no --max-token; did you mean --max-tokens?"),
        (["serve", "--hosst", "x"], "`woolly serve` has no --hosst; did you mean --host?"),
        (["run", "--x\x1b[2J", "hello there"], "`woolly run` has no --x\\x1b[2J; see `woolly run --help`"),
        (["run", "--temperature", "hot", "hello there"], "--temperature is 'hot'; expected a number from 0 to 100"),
        (["run", "--top-k", "1.5", "hello there"], "--top-k is '1.5'; expected a whole number of at least -1"),
        (["run", "--seed", "x", "hello there"], "--seed is 'x'; expected a whole number"),
        (["run", "hello there", "--top-k"], "--top-k needs a value"),
        (["bench", "tiny-talker", "--depth", "deep"], "--depth: 'deep' is no whole number; see `woolly bench --help`"),
        (["bench", "tiny-talker", "--seconds", "x"], "--seconds: 'x' is no number"),
        (["serve", "--port", "80000"], "--port is '80000'; expected a whole number from 0 to 65,535"),
        (["list", "one", "two"], "'two' is one word too many; see `woolly list --help`"),
        (["run", "a", "b", "c"], "3 words"),
        (["run"], "there is no prompt"),
        (["run", "hello"], "'hello' alone is taken as a model"),
        (["tokenize"], "the following arguments are required"),
        (["tokenize", "a", "b", "c"], "3 words"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(woolly: Woolly, words: list[str], expected: str) -> None:
    done = woolly(*words)
    assert done.returncode == 2
    assert one_line(done.stderr), done.stderr
    assert expected in done.stderr
    assert done.stdout == ""


def test_a_model_that_is_not_there_is_exit_3_with_the_nearest(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-walker", "hello")
    assert done.returncode == 3
    assert one_line(done.stderr)
    assert "did you mean 'tiny-talker'?" in done.stderr


def test_a_file_that_is_no_model_is_exit_4(woolly: Woolly, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF and then nothing that makes sense, for a while")
    for name in ("run", "tokenize"):
        done = woolly(name, str(path), "hello")
        assert done.returncode == 4
        assert one_line(done.stderr)


def test_a_model_that_cannot_be_downloaded_is_exit_6(woolly: Woolly, tmp_path: Path) -> None:
    done = woolly("tokenize", "smollm2", "hello", WOOLLY_MODELS_DIR=str(tmp_path))
    assert done.returncode == 6
    assert one_line(done.stderr)
    assert "WOOLLY_OFFLINE" in done.stderr


def test_f06_a_models_folder_that_cannot_be_made_is_exit_8(woolly: Woolly, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = woolly("tokenize", "smollm2", "hi", WOOLLY_MODELS_DIR=str(tmp_path / "file" / "models"), WOOLLY_OFFLINE="0")
    assert done.returncode == 8
    assert one_line(done.stderr)


def test_an_impossible_setting_is_exit_2(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-talker", "hello", WOOLLY_KV="q4")
    assert done.returncode == 2
    assert "WOOLLY_KV" in done.stderr


def test_an_unknown_setting_is_a_warning_and_no_more(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-talker", "hello", WOOLLY_THREADS="2")
    assert done.returncode == 0
    assert done.stderr.startswith("woolly: warning: ")
    assert "WOOLLY_CPU_THREADS" in done.stderr


def test_a_trace_is_shown_for_debugging_only(woolly: Woolly) -> None:
    words = ("tokenize", "./nothing.gguf", "hello")
    assert "Traceback" not in woolly(*words).stderr
    done = woolly(*words, WOOLLY_LOG_LEVEL="debug")
    assert done.returncode == 3
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("woolly: error: ")


def test_a_fault_of_woolly_is_exit_70_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(args: argparse.Namespace) -> int:
        raise ValueError(f"cannot do {args.words[0]}")

    monkeypatch.setattr(tokenize, "call", call)
    assert cli.main(["tokenize", "my secret"]) == 70
    error = capsys.readouterr().err
    assert one_line(error)
    assert "ValueError" in error
    assert "secret" not in error
