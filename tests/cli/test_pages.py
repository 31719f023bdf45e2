"""docs/coming-from.md: what it tells people to type is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.test_every import parser_of
from woolly.cli.commands import COMMANDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"
TYPED = [words.split() for words in re.findall(r"`woolly ([^`]+)`", PAGE.read_text("utf-8"))]
KNOWN = [words for words in TYPED if words[0] in COMMANDS]


def test_the_page_names_most_commands() -> None:
    assert {words[0] for words in KNOWN} >= {
        "run",
        "serve",
        "bench",
        "perplexity",
        "tokenize",
        "inspect",
        "doctor",
        "plan",
    }


@pytest.mark.parametrize("words", KNOWN, ids=" ".join)
def test_every_option_of_the_page_is_one_of_its_command(words: list[str]) -> None:
    options = {name for action in parser_of(words[0])._actions for name in action.option_strings}
    assert {word for word in words if word.startswith("-") and len(word) > 1} <= options


def test_the_options_that_stand_for_others_are_there() -> None:
    options = {name for action in parser_of("run")._actions for name in action.option_strings}
    for word in ("--context", "--threads", "--max-tokens", "--temperature", "--repetition-penalty", "--kv", "--seed"):
        assert word in options
