"""What is drawn on a terminal: the same however it came, seldom, and nothing that acts."""

from __future__ import annotations

import io
from typing import Any

import pytest

from woolly.cli.chat.screen import Appearance, Screen, appearance_of

PLAIN = {"TERM": "xterm", "NO_COLOR": "1"}


class Tube(io.StringIO):
    """A terminal that knows what it shows: text, returns, cursor up, erase below."""

    now = 0.0  # the time at which it is looked at

    def isatty(self) -> bool:
        return True

    def shown(self) -> list[str]:
        rows, at = [""], 0
        data, i = self.getvalue(), 0
        while i < len(data):
            if data[i] == "\x1b":
                end = next(j for j in range(i + 2, len(data)) if data[j].isalpha())
                if data[end] == "A":
                    at -= int(data[i + 2 : end])
                    assert at >= 0, "drawn over what was there before"
                elif data[end] == "J":
                    rows[at:] = [""]
                i = end + 1
                continue
            if data[i] == "\n":
                at += 1
                if at == len(rows):
                    rows.append("")
            elif data[i] != "\r":
                rows[at] += data[i]
            i += 1
        return rows


def screen(tube: Tube, **how: Any) -> Screen:
    rows = how.pop("rows", 24)
    return Screen(tube, Appearance(**how), PLAIN, size=lambda: (40, rows), clock=lambda: tube.now)


ANSWER = (
    "# Wool\n\nIt is **warm** and `soft`, and a line that is long enough to be wrapped.\n\n"
    "1. one\n2. two\n\n```\na  b\n```\nend"
)

DRAWN = [
    "Wool",
    "",
    "It is warm and soft, and a line that is",
    "long enough to be wrapped.",
    "",
    " 1 one",
    " 2 two",
    "",
    "    a  b",
    "",
    "end",
    "",
]


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_markdown_looks_the_same_however_it_came(size: int) -> None:
    tube = Tube()
    drawn = screen(tube, markdown=True)
    for i in range(0, len(ANSWER), size):
        drawn.words(ANSWER[i : i + size])
        tube.now += 1.0  # long enough for every piece to be drawn
    drawn.end()
    assert tube.shown() == DRAWN


def test_finished_blocks_are_written_once_and_the_open_one_at_most_eight_times_a_second() -> None:
    tube, now = Tube(), 0.0
    drawn = Screen(tube, Appearance(markdown=True), PLAIN, size=lambda: (40, 24), clock=lambda: now)
    for block in range(5):
        for letter in f"block number{block} " + "and words " * 20 + "\n\n":
            drawn.words(letter)
            now += 0.005
    drawn.end()
    written = tube.getvalue()
    seconds = now
    assert written.count("number0") <= 2 + 8 * seconds / 5
    first = written.rindex("number0")
    assert "number0" not in written[first + 10 :]
    assert written.count("\x1b[J") <= 8 * seconds + 6


def test_a_drawing_that_takes_long_is_done_less_often() -> None:
    tube, now, draws = Tube(), 0.0, 0

    def size() -> tuple[int, int]:
        nonlocal now, draws
        now, draws = now + 0.5, draws + 1  # a slow machine
        return 40, 24

    drawn = Screen(tube, Appearance(markdown=True), PLAIN, size=size, clock=lambda: now)
    for _ in range(1000):
        drawn.words("word ")
        now += 0.01
    assert draws * 0.5 <= now / 10 + 1


def test_an_open_block_higher_than_the_terminal_shows_its_end() -> None:
    tube = Tube()
    drawn = screen(tube, markdown=True, rows=6)
    for i in range(30):
        drawn.words(f"```\nline{i}\n" if i == 0 else f"line{i}\n")
        tube.now += 1.0
    assert [row.strip() for row in tube.shown()] == ["line26", "line27", "line28", "line29"]
    drawn.words("```\n")
    drawn.end()
    assert [row.strip() for row in tube.shown()] == [*(f"line{i}" for i in range(30)), ""]


def test_nothing_that_the_model_wrote_is_hidden() -> None:
    tube = Tube()
    drawn = screen(tube, markdown=True)
    drawn.words("a [link](http://example.org/) and <b>HTML</b>\nand [bold]no markup[/bold] of ours")
    drawn.end()
    shown = "".join(tube.shown())
    assert "http://example.org/" in shown
    assert "<b>HTML</b>" in shown.replace(" ", "")
    assert "[bold]" in shown


def test_t13_what_acts_is_escaped_in_words_and_in_thoughts() -> None:
    for how in ({"markdown": True}, {}):
        tube = Tube()
        drawn = screen(tube, **how)
        drawn.thoughts("hm\x1b[2J")
        drawn.words("a\x1b]0;title\x07b\n\n```\n\x9b31m\n```\n")
        drawn.note("\x1b[5m")
        drawn.end()
        assert "\x1b[2J" not in tube.getvalue()
        assert not {"\x07", "\x9b"} & set(tube.getvalue())
        assert "\\x1b]0;title\\x07b" in tube.getvalue()


def test_thoughts_are_dimmed_named_or_marked() -> None:
    dim, named, marked = Tube(), Tube(), Tube()
    for tube, how in ((dim, {"dim": True}), (named, {}), (marked, {"marked": True})):
        drawn = screen(tube, **how)
        drawn.thoughts("hm")
        drawn.thoughts(" so")
        drawn.words("yes")
        drawn.end()
    assert dim.getvalue() == "\x1b[2mhm\x1b[0m\x1b[2m so\x1b[0m\n\nyes\n"
    assert named.getvalue() == "(thinks)\nhm so\n(answers)\nyes\n"
    assert marked.getvalue() == "<think>\nhm so\n</think>\n\nyes\n"


@pytest.mark.parametrize(
    ("out", "environ", "how", "seen"),
    [
        (io.StringIO(), {"TERM": "xterm"}, {}, Appearance(raw=True, marked=True)),
        (Tube(), {"TERM": "xterm"}, {}, Appearance(markdown=True, dim=True)),
        (Tube(), {"TERM": "xterm", "NO_COLOR": "1"}, {}, Appearance(markdown=True)),
        (Tube(), {"TERM": "xterm", "NO_COLOR": ""}, {}, Appearance(markdown=True, dim=True)),
        (Tube(), {"TERM": "dumb"}, {}, Appearance()),
        (Tube(), {}, {}, Appearance()),
        (Tube(), {"TERM": "xterm"}, {"plain": True}, Appearance(dim=True)),
        (Tube(), {"TERM": "xterm"}, {"raw": True}, Appearance(dim=True, raw=True)),
    ],
)
def test_the_look_is_what_terminal_and_user_allow(
    out: io.StringIO, environ: dict[str, str], how: dict[str, bool], seen: Appearance
) -> None:
    assert appearance_of(out, environ, **how) == seen
