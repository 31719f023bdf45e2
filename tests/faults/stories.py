"""Stories: what a user does with what is kept on the disk, and what has to be there afterwards.

`act` is the story, in which calls may fail; it acknowledges what the user was told to be done. `losses` looks what of
that is gone, with a disk that is well again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.faults.calls import FailingCalls
from woolly.cli import config as config_command
from woolly.cli.chat import history, saved
from woolly.cli.chat.conversation import Conversation, Turn
from woolly.config.sources import read_file
from woolly.engine.cache.disk import DiskStore, name_of
from woolly.errors import NotFoundError, WoollyError
from woolly.store import transfer
from woolly.store.transfer import Source, download

Acknowledge: TypeAlias = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class Story:
    """act: returns what went wrong while it ran, besides calls that failed."""

    name: str
    act: Callable[[Path, Acknowledge, FailingCalls], list[str]]
    losses: Callable[[Path, Mapping[str, Any]], list[str]]


def done(work: Callable[[], object], *more: type[Exception]) -> bool:
    """Whether the work was done. It may fail with an error of Woolly's; any other is a crash."""
    try:
        work()
    except (WoollyError, *more):
        return False
    return True


# A chat that is saved again and again


def _chat_path(folder: Path) -> Path:
    return folder / "chats" / "plans.json"


def save_chats(folder: Path, acknowledge: Acknowledge, calls: FailingCalls) -> list[str]:
    for number in range(3):
        chat = saved.SavedChat(Conversation("", (Turn("user", str(number)),)), "", {})
        if done(lambda chat=chat: saved.save(_chat_path(folder), chat)):  # type: ignore[misc]
            acknowledge("chat", number)
    return []


def lost_chats(folder: Path, acknowledged: Mapping[str, Any]) -> list[str]:
    try:
        newest = int(saved.load(_chat_path(folder)).conversation.turns[0].content)
    except NotFoundError:
        newest = -1
    return [] if newest >= acknowledged.get("chat", -1) else [f"chat {acknowledged['chat']}, there is {newest}"]


# A setting that is changed


def change_settings(folder: Path, acknowledge: Acknowledge, calls: FailingCalls) -> list[str]:
    for number in range(1, 4):
        words = ["engine.num_threads", str(number)]
        args = argparse.Namespace(action="set", words=words, config=str(folder / "c.toml"), quiet=True, json=False)
        if done(lambda args=args: config_command.call(args)):  # type: ignore[misc]
            acknowledge("setting", number)
    return []


def lost_settings(folder: Path, acknowledged: Mapping[str, Any]) -> list[str]:
    path = folder / "c.toml"
    value = read_file(path)["engine.num_threads"] if path.exists() else 0
    return [] if value >= acknowledged.get("setting", 0) else [f"setting {acknowledged['setting']}, there is {value}"]


# What was typed


def type_messages(folder: Path, acknowledge: Acknowledge, calls: FailingCalls) -> list[str]:
    for number in range(4):
        if done(lambda number=number: history.add_history(folder / "history", f"message {number}"), OSError):  # type: ignore[misc]
            acknowledge(f"message {number}", True)
    return []


def lost_messages(folder: Path, acknowledged: Mapping[str, Any]) -> list[str]:
    done(lambda: history.add_history(folder / "history", "another"))
    entries = history.read_history(folder / "history")
    return [entry for entry in (*acknowledged, "another") if entry not in entries]


# Pages of the prefix cache


def _page(number: int) -> tuple[bytes, bytes]:
    name = name_of(b"page", bytes([number]))
    return name, blake2b(name).digest() * 80


def write_pages(folder: Path, acknowledge: Acknowledge, calls: FailingCalls) -> list[str]:
    disk_store = DiskStore(folder / "prefix", 1 << 20)
    disk_store.open()
    wrong = []
    for number in range(3):
        name, value = _page(number)
        if disk_store.put(name, value):
            acknowledge(f"page {number}", True)
        data = disk_store.get(name, len(value))
        if data is not None and data != value:
            wrong.append(f"page {number} is wrong")
    return wrong


def lost_pages(folder: Path, acknowledged: Mapping[str, Any]) -> list[str]:
    disk_store = DiskStore(folder / "prefix", 1 << 20)
    disk_store.open()
    pages = {f"page {number}": _page(number) for number in range(3)}
    return [name for name in acknowledged if disk_store.get(pages[name][0], len(pages[name][1])) != pages[name][1]]


# A download


def download_model(url: str, sha256: str, folder: Path, acknowledge: Acknowledge, calls: FailingCalls) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        patch.setattr(transfer, "BACKOFF_S", 0.001)
        for _ in range(2):
            if done(lambda: download(Source(url, None, sha256), folder / "model.gguf", models=folder)):
                acknowledge("model", sha256)
    return []


def lost_models(url: str, sha256: str, data: bytes, folder: Path, acknowledged: Mapping[str, Any]) -> list[str]:
    path = folder / "model.gguf"
    losses = [] if path.exists() or not acknowledged else ["the model"]
    if path.exists() and path.read_bytes() != data:
        losses.append("the bytes of the model")
    download_model(url, sha256, folder, lambda *_: None, FailingCalls(folder))
    return losses if path.read_bytes() == data else [*losses, "the download that came after"]


def download_story(url: str, sha256: str, data: bytes) -> Story:
    """The download of a file that a server of tests has."""
    return Story("a download", partial(download_model, url, sha256), partial(lost_models, url, sha256, data))


SMALL = (
    Story("a saved chat", save_chats, lost_chats),
    Story("a setting", change_settings, lost_settings),
    Story("a history", type_messages, lost_messages),
    Story("pages on disk", write_pages, lost_pages),
)
