"""What a chat keeps on the disk: saved chats and what was typed."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from woolly.cli.chat import history, saved
from woolly.cli.chat.conversation import Conversation, Turn
from woolly.errors import BusyError, FileError, NotFoundError, RequestError
from woolly.io.files import read_text, write_private
from woolly.limits import LIMITS, Limits


def test_a_saved_chat_comes_back_as_it_was(tmp_path: Path) -> None:
    chat = Conversation("Be brief.", (Turn("user", "Grüße \x1b"), Turn("assistant", "hi", "hm")))
    options = {"temperature": 0.5, "stop": ["x"], "think": True}
    path = saved.path_of("plans", tmp_path / "chats")
    saved.save(path, saved.SavedChat(chat, "smollm2", options))
    assert saved.load(path) == saved.SavedChat(chat, "smollm2", options)
    assert saved.chat_names(path.parent) == ["plans"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["plans.json"]


GOOD = {"woolly_chat": 1, "model": "", "system": "", "settings": {}, "messages": []}


@pytest.mark.parametrize(
    ("data", "expected"),
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
        (json.dumps(GOOD | {"settings": {"logit_bias": {"a": "b"}}}).encode(), "logit_bias"),
        (json.dumps(GOOD | {"settings": {"stop": [1]}}).encode(), "stop"),
        (json.dumps(GOOD).encode().replace(b'""', b'"\\ud800"'), "no saved chat"),
    ],
    ids=range(14),
)
def test_a_file_that_is_no_saved_chat_is_refused(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(data)
    with pytest.raises(FileError, match=expected) as refused:
        saved.load(path)
    assert str(refused.value).isprintable()


def test_a_chat_without_an_end_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no ordinary file"):
        saved.load(Path("/dev/zero"))
    with pytest.raises(NotFoundError):
        saved.load(tmp_path / "nothing.json")
    for word in ("..", "a b", "-", "", "\x1b"):
        with pytest.raises(RequestError, match="no name"):
            saved.path_of(word, tmp_path)


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


def test_nothing_is_written_for_a_user_who_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="there is no such user"):
        saved.save(saved.path_of("~nobody-of-this-name/chat.json", tmp_path), saved.SavedChat(Conversation(), "", {}))
    assert list(tmp_path.iterdir()) == []


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


def test_f27_a_history_that_cannot_be_read_is_not_shortened_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"one"\n' * 10)
    real = os.open

    def no_descriptor_to_read(path: Path, flags: int, *mode: int) -> int:
        if not flags & os.O_APPEND:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, flags, *mode)

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", no_descriptor_to_read)
        broken.setattr(history, "LIMITS", Limits(history=50))
        with pytest.raises(BusyError, match="Too many open files"):
            history.add_history(path, "two")
    assert history.read_history(path) == ["one"] * 10 + ["two"]


def test_what_is_typed_after_a_line_that_was_cut_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b'"one"\n"tw')
    history.add_history(path, "three")
    assert history.read_history(path) == ["one", "three"]


def test_history_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "history"
    entry = "x" * 50_000
    for i in range(2 * LIMITS.history // len(entry)):
        history.add_history(path, f"{i}{entry}")
        assert path.stat().st_size <= LIMITS.history + len(entry) + 10
    assert history.read_history(path)[-1].startswith(f"{i}x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
