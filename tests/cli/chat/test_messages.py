"""What a person types: messages, commands, files that go with them, settings, and the conversation they make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from woolly.cli.chat import settings
from woolly.cli.chat.attach import attach
from woolly.cli.chat.conversation import (
    Conversation,
    last_question,
    messages,
    with_answer,
    with_question,
    without_last_question,
    without_turns,
)
from woolly.cli.chat.typed import is_unfinished, message_text, slash_command
from woolly.errors import FileError, RequestError
from woolly.limits import LIMITS


@pytest.mark.parametrize(
    ("typed", "more", "expected"),
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
def test_a_message_of_several_lines(typed: str, more: bool, expected: str | None) -> None:
    assert is_unfinished(typed) == more
    if expected is not None:
        assert message_text(typed) == expected


def test_a_slash_word_is_a_command_and_a_path_is_not() -> None:
    assert slash_command("/set  temperature 0.5 ") == ("set", "temperature 0.5")
    assert slash_command("/stats") == ("stats", "")
    assert slash_command("/usr/bin holds what?") is None
    assert slash_command("/") is None
    assert slash_command("hello /help") is None
    assert slash_command('"""/help"""') is None


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
    for name, expected in (
        ("picture", "byte 3"),
        ("zeros", "byte 3"),
        ("long", "more than"),
        ("pipe", "no ordinary file"),
    ):
        with pytest.raises(FileError, match=expected):
            attach(f"look at @{name}")
    for i in range(LIMITS.attachments + 1):
        Path(f"f{i}").write_text("x")
    with pytest.raises(RequestError, match="files"):
        attach(" ".join(f"@f{i}" for i in range(LIMITS.attachments + 1)))


def test_a_setting_is_read_checked_and_taken_back() -> None:
    options = settings.changed({}, "Top-P", "0.5")
    options = settings.changed(options, "max_tokens", "12")
    options = settings.changed(options, "think", "off")
    options = settings.changed(options, "stop", "\\n\\n")
    assert options == {"top_p": 0.5, "max_tokens": 12, "think": False, "stop": ["\n\n"]}
    assert settings.changed(options, "top_p", "default") == {"max_tokens": 12, "think": False, "stop": ["\n\n"]}
    weighed = settings.changed(settings.changed(options, "logit-bias", "a=b=-5"), "dry_sequence_breakers", "\\n")
    assert (weighed["logit_bias"], weighed["dry_sequence_breakers"]) == ({"a=b": -5.0}, ["\n"])
    for name, value, expected in (
        ("logit_bias", "wool", "no bias"),
        ("mirostat", "1", "multiple of 2"),
        ("top_p", "2", "top_p"),
        ("top_k", "many", "whole number"),
        ("think", "perhaps", "on or off"),
        ("temprature", "1", "did you mean 'temperature'"),
    ):
        with pytest.raises(RequestError, match=expected):
            settings.changed(options, name, value)
    assert "0.3 (the model's)" in settings.lines(options, {"temperature": 0.3})


def test_a_conversation_is_a_value() -> None:
    first = with_question(Conversation("Be brief."), "hello")
    turns = with_question(with_answer(first, "hi", "hm"), "and?")
    assert [m["content"] for m in messages(turns)] == ["Be brief.", "hello", "hi", "and?"]
    assert last_question(turns) == "and?"
    assert without_last_question(turns) == with_answer(first, "hi", "hm")
    assert without_last_question(without_last_question(turns)) == Conversation("Be brief.") == without_turns(turns)
    assert without_last_question(Conversation()) == Conversation()
    assert last_question(Conversation()) is None
