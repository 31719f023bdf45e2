"""No name of the code has a word of the private language that it once spoke (tools/old_words.py)."""

from __future__ import annotations

from tools.old_words import ROOT, Name, left, old_word


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
