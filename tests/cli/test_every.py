"""Every command, whatever it is: help with an example, JSON that parses, wrong usage in one line, a quick start."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import Woolly
from woolly.cli.commands import COMMANDS, load

# What each command with --json is asked; a new one is asked here too, or the test below fails.
ASKED: dict[str, list[str]] = {
    "run": ["tiny-talker", "hello", "--max-tokens", "4"],
    "pull": ["tiny-talker"],
    "list": [],
    "show": ["tiny-talker"],
    "tokenize": ["tiny-talker", "hello"],
    "inspect": ["tiny-talker"],
    "perplexity": ["tiny-talker", "TEXT", "--context", "16"],
    "bench": ["tiny-talker", "-p", "4", "-n", "2", "-r", "1", "--batch", "1"],
    "plan": ["tiny-talker"],
    "config": ["show"],
    "doctor": [],
}
NO_NUMPY = [["--version"], ["--help"], ["run", "--help"], ["list"], ["ls"], ["config", "--help"]]
HEAVY = "{'numpy', 'tokenizers', 'jinja2', 'llguidance', 'huggingface_hub', 'woolly._core'}"


def parser_of(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"woolly {name}", allow_abbrev=False)
    load(name).arguments(parser)
    return parser


def has_json(name: str) -> bool:
    return any("--json" in action.option_strings for action in parser_of(name)._actions)


def is_alias(name: str) -> bool:
    return COMMANDS[name].what.startswith("the same as")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_has_an_example_and_a_word_on_every_option(woolly: Woolly, started: Woolly, name: str) -> None:
    ask = woolly if name in ASKED else started  # those are started below
    done = ask(name, "--help", COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: woolly {name}" in done.stdout
    assert re.search(r"^ {4}(\S+ .*)?woolly ", done.stdout, re.M), "no example"
    for action in parser_of(name)._actions:
        assert action.help, action.option_strings or action.dest


@pytest.mark.parametrize("name", [name for name in COMMANDS if not is_alias(name)])
def test_every_command_that_prints_data_is_asked_for_json(name: str) -> None:
    assert (name in ASKED) == has_json(name) or name == "rm"


@pytest.mark.parametrize("name", ASKED)
def test_json_is_one_object_on_standard_output_and_nothing_else(started: Woolly, name: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Hello there, and hello again. " * 5)
    words = [str(text) if word == "TEXT" else word for word in ASKED[name]]
    done = started(name, *words, "--json", NO_COLOR="1", TERM="dumb")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_is_not_there_is_one_line_and_exit_2(woolly: Woolly, name: str) -> None:
    done = woolly(name, "--no-such-option", "word", "word")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("woolly: error: ") and done.stderr.count("\n") == 1
    assert f"woolly {name} --help" in done.stderr or "--no-such-option" in done.stderr


@pytest.mark.parametrize("name", [name for name in COMMANDS if has_json(name)])
def test_quiet_is_known_where_a_command_tells_more_than_its_result(name: str) -> None:
    source = Path(load(name).__file__ or "").read_text("utf-8")
    assert "status(" not in source or any("--quiet" in action.option_strings for action in parser_of(name)._actions)


@pytest.mark.parametrize("words", [w for w in NO_NUMPY if w[0].startswith("-") or w[0] in COMMANDS], ids=" ".join)
def test_what_must_start_quickly_imports_no_numpy(words: list[str], environ: dict[str, str]) -> None:
    code = f"import sys; from woolly.cli.main import main; main(); print(sorted(set(sys.modules) & {HEAVY}))"
    done = subprocess.run([sys.executable, "-c", code, *words], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_command_draws_on_what_is_no_terminal(woolly: Woolly) -> None:
    """What is being done is told to terminals alone."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("Hello there, and hello again. " * 5)
        done = woolly("perplexity", "tiny-talker", str(text), "--context", "16")
    assert done.stderr == "" and "\x1b" not in done.stdout
