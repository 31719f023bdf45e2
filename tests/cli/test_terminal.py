"""cli.terminal: what a model writes cannot act on a terminal, and the bar is drawn only there."""

from __future__ import annotations

import io
import sys

import pytest

from woolly.cli.terminal import escape_controls, loading_bar, progress_bar


@pytest.mark.parametrize(
    "text",
    [
        "Hello,\n\tworld",
        "Grüße, 世界",
        "👩\u200d🚀 and 🏴",
        "עברית \u200fمرحبا",
        "1\u00a0000",
        "new emoji \U0001fae8",
        "\ue000",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert escape_controls(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x07", "\\x07"),
        ("a\rb", "a\\rb"),
        ("\x9b31m", "\\x9b31m"),
        ("\x7f\x00\x08", "\\x7f\\x00\\x08"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("a\U000e0041b", "a\\U000e0041b"),
    ],
)
def test_what_acts_on_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_grows_and_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    draw = progress_bar("downloading x")
    draw(0, 90_000_000)
    draw(45_000_000, 90_000_000)
    draw(90_000_000, 90_000_000)
    frames = sys.stderr.getvalue().split("\r")[1:]  # type: ignore[attr-defined]
    assert [frame.count("#") for frame in frames] == [0, 15, 30]
    assert "45 of 90 MB" in frames[1]
    assert frames[-1].endswith("\n")
    draw(90_000_000, 90_000_000)
    assert sys.stderr.getvalue().count("\r") == len(frames)  # type: ignore[attr-defined]


def test_the_bar_tells_speed_and_time_left_of_what_came_in_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    clock = iter([0.0, 2.0, 400.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    draw = progress_bar("downloading x")
    draw(500_000_000, 1_000_000_000)  # an earlier run had brought half of it
    draw(520_000_000, 1_000_000_000)
    draw(540_000_000, 1_000_000_000)
    frames = sys.stderr.getvalue().split("\r")[1:]  # type: ignore[attr-defined]
    assert "MB/s" not in frames[0]
    assert "520 of 1000 MB, 10.0 MB/s, 48 s left" in frames[1]
    assert "540 of 1000 MB, 0.1 MB/s, 77 min left" in frames[2]


def test_a_narrow_or_dumb_terminal_gets_what_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    progress_bar("downloading x")(0, 90_000_000)
    assert sys.stderr.getvalue() == "\rdownloading x 0 of 90 MB\x1b[K"  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    progress_bar("downloading x")(0, 90_000_000)
    assert sys.stderr.getvalue() == "downloading x, 90 MB\n"  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress_bar("downloading x", quiet=True)(0, 90_000_000)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_without_a_terminal_one_line_says_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    tell = progress_bar("downloading x")
    for done in (0, 45_000_000, 90_000_000):
        tell(done, 90_000_000)
    assert sys.stderr.getvalue() == "downloading x, 90 MB\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("seconds", "shown"), [(0.2, False), (3.0, True)])
def test_a_load_shows_a_bar_only_if_it_takes_long(seconds: float, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    draw = loading_bar("x")
    assert draw is not None
    for done in (1, 2, 3, 4):
        now += seconds / 4
        draw(done * 10_000_000, 40_000_000)
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert ("loading x" in text, text.endswith("\n")) == (shown, shown)


def test_a_load_shows_no_bar_to_a_pipe_and_none_where_it_should_be_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loading_bar("x") is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert loading_bar("x", quiet=True) is None
