"""Telling thoughts from words."""

from __future__ import annotations

import pytest

from woolly.cli.chat.thoughts import Thoughts


def parted(pieces: list[str], *, inside: bool = False) -> tuple[str, str]:
    split, parts = Thoughts(inside=inside), {"thoughts": "", "words": ""}
    for kind, text in [*(p for piece in pieces for p in split.feed(piece)), *split.flush()]:
        parts[kind] += text
    return parts["thoughts"], parts["words"]


@pytest.mark.parametrize(
    ("text", "inside", "thoughts", "words"),
    [
        ("<think>\nhm</think>\n\nyes", False, "hm", "yes"),
        ("\n<think>hm</think>yes", False, "hm", "yes"),
        ("hm</think>yes", True, "hm", "yes"),
        ("yes <think>no</think>", False, "", "yes <think>no</think>"),
        ("<b>yes</b>", False, "", "<b>yes</b>"),
        ("<think>a < b </ c", False, "a < b </ c", ""),
        ("<thi", False, "", "<thi"),
        ("<think>", False, "", ""),
        ("<think>x</think>a</think>b", False, "x", "a</think>b"),
    ],
)
def test_thoughts_are_told_from_words_however_the_text_is_cut(
    text: str, inside: bool, thoughts: str, words: str
) -> None:
    for size in (1, 2, 3, 7, 100):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert parted(pieces, inside=inside) == (thoughts, words)
