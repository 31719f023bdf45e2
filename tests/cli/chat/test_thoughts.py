"""Telling thoughts from words."""

from __future__ import annotations

import pytest

from woolly.cli.chat.thoughts import Thoughts


def parted(pieces: list[str], *, inside: str = "") -> tuple[str, str]:
    split, parts = Thoughts(inside=inside), {"thoughts": "", "words": ""}
    for kind, text in [*(p for piece in pieces for p in split.feed(piece)), *split.flush()]:
        parts[kind] += text
    return parts["thoughts"], parts["words"]


@pytest.mark.parametrize(
    ("text", "inside", "thoughts", "words"),
    [
        ("<think>\nhm</think>\n\nyes", "", "hm", "yes"),
        ("\n<think>hm</think>yes", "", "hm", "yes"),
        ("hm</think>yes", "</think>", "hm", "yes"),
        ("[THINK]a [x]</think>[/THINK]yes", "", "a [x]</think>", "yes"),
        ("hm[/THINK]yes", "[/THINK]", "hm", "yes"),
        ("[1] yes", "", "", "[1] yes"),
        ("yes <think>no</think>", "", "", "yes <think>no</think>"),
        ("<b>yes</b>", "", "", "<b>yes</b>"),
        ("<think>a < b </ c", "", "a < b </ c", ""),
        ("<thi", "", "", "<thi"),
        ("<think>", "", "", ""),
        ("<think>x</think>a</think>b", "", "x", "a</think>b"),
    ],
)
def test_thoughts_are_told_from_words_however_the_text_is_cut(
    text: str, inside: str, thoughts: str, words: str
) -> None:
    for size in (1, 2, 3, 7, 100):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert parted(pieces, inside=inside) == (thoughts, words)
