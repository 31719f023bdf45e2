"""No name of the code has a word of the private language that it once spoke (tools/old_words.py)."""

from __future__ import annotations

import ast

import pytest

from tools.old_words import ROOT, Name, left, names, old_word


def test_no_name_has_an_old_word() -> None:
    roots = [ROOT / top for top in ("woolly", "tests", "tools")]
    assert [str(name) for name, _ in left(roots)] == []


def test_a_name_with_an_old_word_is_seen() -> None:
    for name, what, expected in (
        ("found", "local", "found"),
        ("found", "attribute", None),
        ("ModelShelf", "class", "shelf"),
        ("is_whole", "function", "whole"),
        ("test_a_whole_answer", "function", None),
        ("wholesome", "local", None),
    ):
        assert old_word(Name("woolly/x.py", 1, name, what)) == expected, name


def test_a_word_that_has_another_meaning_elsewhere_is_old_in_its_folders_alone() -> None:
    for name, path, expected in (
        ("gate", "woolly/fleet/x.py", "gate"),
        ("gate", "woolly/model/x.py", None),
        ("gates", "woolly/validate/x.py", None),
        ("kind", "woolly/fleet/x.py", "kind"),
        ("kind", "woolly/fleet/wire.py", None),
        ("_take", "woolly/server/models/x.py", "take"),
        ("_take", "woolly/engine/x.py", None),
    ):
        assert old_word(Name(path, 1, name, "function")) == expected, (name, path)


@pytest.mark.parametrize(
    "line",
    [
        "class found: ...",
        "def found(): ...",
        "def f(found): ...",
        "lambda found: 0",
        "found = 0",
        "x.found = 0",
        "for found in (): ...",
        "with x as found: ...",
        "import x as found",
        "match x:\n    case {'a': found}: ...",
        "match x:\n    case [*found]: ...",
        "match x:\n    case {**found}: ...",
        "try: ...\nexcept OSError as found: ...",
        "class C:\n    found: int",
    ],
)
def test_a_name_is_seen_wherever_it_is_given(line: str) -> None:
    assert "found" in [name.name for name in names(ROOT / "woolly" / "x.py", ast.parse(line))]
