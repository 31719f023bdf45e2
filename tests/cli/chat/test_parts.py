"""The parts of a chat that need no terminal and no model."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from woolly.cli.chat import history, saved, settings
from woolly.cli.chat.attach import attach
from woolly.cli.chat.blocks import Blocks
from woolly.cli.chat.conversation import Conversation, Turn, answered, asked, cleared, last_question, messages, undone
from woolly.cli.chat.screen import Look, Screen, look
from woolly.cli.chat.thoughts import Thoughts
from woolly.cli.chat.typed import command, message, unfinished
from woolly.cli.files import read_text, write_private
from woolly.errors import FileError, NotFoundError, RequestError
from woolly.limits import LIMITS

PLAIN = {"TERM": "xterm", "NO_COLOR": "1"}


# Thoughts


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


# Blocks


def blocks(text: str, size: int) -> list[str]:
    cut = Blocks()
    found = [block for i in range(0, len(text), size) for block in cut.feed(text[i : i + size])]
    return found + cut.flush()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("one\ntwo\n\n\nthree", ["one\ntwo", "three"]),
        ("```py\na\n\nb\n```\nafter", ["```py\na\n\nb\n```", "after"]),
        ("before\n```\na\n```\n", ["before", "```\na\n```"]),
        ("~~~\n```\n~~~\nx", ["~~~\n```\n~~~", "x"]),
        ("````\n```\n````\nx", ["````\n```\n````", "x"]),
        ("- a\n\n  more of a\n\nafter", ["- a\n\n  more of a\n", "after"]),
        (
            "1. a\n\n   ```\n   x\n\n   y\n   ```\n2. b\n\nafter",
            ["1. a\n\n   ```\n   x\n\n   y\n   ```\n2. b\n", "after"],
        ),
        ("```\nnever closed\n\n", ["```\nnever closed\n"]),
        ("\n \n", []),
        ("a ```b``` c\n\nd", ["a ```b``` c", "d"]),
    ],
)
def test_a_block_ends_at_a_blank_line_or_with_its_fence(text: str, found: list[str]) -> None:
    for size in (1, 2, 5, 100):
        assert blocks(text, size) == found


@given(st.text(alphabet="ab `~-1.\n", max_size=60), st.integers(1, 9))
def test_no_letter_is_lost_between_blocks(text: str, size: int) -> None:
    assert "".join("".join(blocks(text, size)).split()) == "".join(text.split())


# The screen


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
    return Screen(tube, Look(**how), PLAIN, size=lambda: (40, rows), clock=lambda: tube.now)


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
    drawn = Screen(tube, Look(markdown=True), PLAIN, size=lambda: (40, 24), clock=lambda: now)
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

    drawn = Screen(tube, Look(markdown=True), PLAIN, size=size, clock=lambda: now)
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


def test_thoughts_are_dimmed_or_named() -> None:
    dim, named = Tube(), Tube()
    for tube, how in ((dim, {"dim": True}), (named, {})):
        drawn = screen(tube, **how)
        drawn.thoughts("hm")
        drawn.thoughts(" so")
        drawn.words("yes")
        drawn.end()
    assert dim.getvalue() == "\x1b[2mhm\x1b[0m\x1b[2m so\x1b[0m\n\nyes\n"
    assert named.getvalue() == "(thinks)\nhm so\n(answers)\nyes\n"


@pytest.mark.parametrize(
    ("out", "environ", "how", "seen"),
    [
        (io.StringIO(), {"TERM": "xterm"}, {}, Look(raw=True)),
        (Tube(), {"TERM": "xterm"}, {}, Look(markdown=True, dim=True)),
        (Tube(), {"TERM": "xterm", "NO_COLOR": "1"}, {}, Look(markdown=True)),
        (Tube(), {"TERM": "xterm", "NO_COLOR": ""}, {}, Look(markdown=True, dim=True)),
        (Tube(), {"TERM": "dumb"}, {}, Look()),
        (Tube(), {}, {}, Look()),
        (Tube(), {"TERM": "xterm"}, {"plain": True}, Look(dim=True)),
        (Tube(), {"TERM": "xterm"}, {"raw": True}, Look(dim=True, raw=True)),
    ],
)
def test_the_look_is_what_terminal_and_user_allow(
    out: io.StringIO, environ: dict[str, str], how: dict[str, bool], seen: Look
) -> None:
    assert look(out, environ, **how) == seen


# What is typed


@pytest.mark.parametrize(
    ("typed", "more", "said"),
    [
        ("hello", False, "hello"),
        ("one\\", True, None),
        ("one\\\ntwo", False, "one\ntwo"),
        ("a path C:\\\\", False, "a path C:\\\\"),
        ('"""one', True, None),
        ('"""one\n\ntwo"""', False, "one\n\ntwo"),
        ('"""\none\n"""', False, "one"),
        ('say """ aloud', False, 'say """ aloud'),
        ('"""/help"""', False, "/help"),
    ],
)
def test_a_message_of_several_lines(typed: str, more: bool, said: str | None) -> None:
    assert unfinished(typed) == more
    if said is not None:
        assert message(typed) == said


def test_a_slash_word_is_a_command_and_a_path_is_not() -> None:
    assert command("/set  temperature 0.5 ") == ("set", "temperature 0.5")
    assert command("/stats") == ("stats", "")
    assert command("/usr/bin holds what?") is None
    assert command("/") is None
    assert command("hello /help") is None
    assert command('"""/help"""') is None


# Attached files


def test_the_text_of_a_file_goes_with_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("Grüße\n")
    Path("my notes.txt").write_text("two")
    sent = attach('Read @notes.txt, then @"my notes.txt" and @notes.txt. Not me@notes.txt nor @property.')
    assert sent.files == ("notes.txt", "my notes.txt")
    assert sent.words == ("property.",)
    assert sent.text.endswith(
        "--- notes.txt\nGrüße\n--- end of notes.txt\n\n--- my notes.txt\ntwo\n--- end of my notes.txt"
    )


def test_what_is_no_text_is_not_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("picture").write_bytes(b"abc\xff")
    Path("zeros").write_bytes(b"abc\0")
    Path("long").write_bytes(b"x" * (LIMITS.attachment + 1))
    os.mkfifo("pipe")
    for name, said in (("picture", "byte 3"), ("zeros", "byte 3"), ("long", "more than"), ("pipe", "no ordinary file")):
        with pytest.raises(FileError, match=said):
            attach(f"look at @{name}")
    for i in range(LIMITS.attachments + 1):
        Path(f"f{i}").write_text("x")
    with pytest.raises(RequestError, match="files"):
        attach(" ".join(f"@f{i}" for i in range(LIMITS.attachments + 1)))


# Settings


def test_a_setting_is_read_checked_and_taken_back() -> None:
    options = settings.changed({}, "Top-P", "0.5")
    options = settings.changed(options, "max_tokens", "12")
    options = settings.changed(options, "think", "off")
    options = settings.changed(options, "stop", "\\n\\n")
    assert options == {"top_p": 0.5, "max_tokens": 12, "think": False, "stop": ["\n\n"]}
    assert settings.changed(options, "top_p", "default") == {"max_tokens": 12, "think": False, "stop": ["\n\n"]}
    for name, value, said in (
        ("top_p", "2", "top_p"),
        ("top_k", "many", "whole number"),
        ("think", "perhaps", "on or off"),
        ("temprature", "1", "did you mean 'temperature'"),
    ):
        with pytest.raises(RequestError, match=said):
            settings.changed(options, name, value)
    assert "0.3 (the model's)" in settings.lines(options, {"temperature": 0.3})


# A conversation


def test_a_conversation_is_a_value() -> None:
    first = asked(Conversation("Be brief."), "hello")
    told = asked(answered(first, "hi", "hm"), "and?")
    assert [m["content"] for m in messages(told)] == ["Be brief.", "hello", "hi", "and?"]
    assert last_question(told) == "and?"
    assert undone(told) == answered(first, "hi", "hm")
    assert undone(undone(told)) == Conversation("Be brief.") == cleared(told)
    assert undone(Conversation()) == Conversation()
    assert last_question(Conversation()) is None


# Files


def test_a_saved_chat_comes_back_as_it_was(tmp_path: Path) -> None:
    talk = Conversation("Be brief.", (Turn("user", "Grüße \x1b"), Turn("assistant", "hi", "hm")))
    options = {"temperature": 0.5, "stop": ["x"], "think": True}
    path = saved.place("plans", tmp_path / "chats")
    saved.save(path, saved.Saved(talk, "smollm2", options))
    assert saved.load(path) == saved.Saved(talk, "smollm2", options)
    assert saved.listed(path.parent) == ["plans"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["plans.json"]


GOOD = {"woolly_chat": 1, "model": "", "system": "", "settings": {}, "messages": []}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no saved chat"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"[" * 100_000, "no saved chat"),
        (b"null", "object"),
        (json.dumps(GOOD | {"woolly_chat": 2}).encode(), "no saved chat"),
        (json.dumps(GOOD | {"more": 1}).encode(), "more"),
        (json.dumps(GOOD | {"messages": [{"role": "system", "content": ""}]}).encode(), "system"),
        (json.dumps(GOOD | {"messages": [{"role": "user", "content": 1}]}).encode(), "str"),
        (json.dumps(GOOD | {"messages": [{"role": "user", "content": ""}] * 20_000}).encode(), "20,000 messages"),
        (json.dumps(GOOD | {"settings": {"temperature": "hot"}}).encode(), "temperature"),
        (json.dumps(GOOD | {"settings": {"temperature": 1e9}}).encode(), "temperature"),
        (json.dumps(GOOD | {"settings": {"logit_bias": {}}}).encode(), "logit_bias"),
        (json.dumps(GOOD | {"settings": {"stop": [1]}}).encode(), "stop"),
        (json.dumps(GOOD).encode().replace(b'""', b'"\\ud800"'), "no saved chat"),
    ],
    ids=range(14),
)
def test_a_file_that_is_no_saved_chat_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(data)
    with pytest.raises(FileError, match=said) as refused:
        saved.load(path)
    assert str(refused.value).isprintable()


def test_a_chat_without_an_end_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no ordinary file"):
        saved.load(Path("/dev/zero"))
    with pytest.raises(NotFoundError):
        saved.load(tmp_path / "nothing.json")
    for word in ("..", "a b", "-", "", "\x1b"):
        with pytest.raises(RequestError, match="no name"):
            saved.place(word, tmp_path)


def test_f02_f05_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chat.json"
    write_private(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left") as refused:
        write_private(path, b"new")
    assert refused.value.code == "disk_full"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    write_private(path, b"new")
    assert read_text(path, 10) == "new"


# History


def test_history_is_private_bounded_and_survives_strange_lines(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    assert history.read_history(path) == []
    for entry in ("one", "two\nlines", "x" * history.LONGEST):
        history.add_history(path, entry)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("ab") as file:
        file.write(b'\xff\n{"a": 1}\n[\n"\\u001b[2J"\n' + b"[" * 10_000 + b"\n")
    history.add_history(path, "three")
    assert history.read_history(path) == ["one", "two\nlines", "three"]


def test_history_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "history"
    entry = "x" * 50_000
    for i in range(2 * LIMITS.history // len(entry)):
        history.add_history(path, f"{i}{entry}")
        assert path.stat().st_size <= LIMITS.history + len(entry) + 10
    assert history.read_history(path)[-1].startswith(f"{i}x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
