"""Saved chats: one JSON file each. What is loaded may come from anyone, and is checked as a whole before it counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from woolly.cli.chat.conversation import Conversation, Turn
from woolly.cli.chat.settings import check
from woolly.errors import FileError, NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.request import Call
from woolly.settings import user_path
from woolly.store.files import read_bytes, write_private

VERSION: Literal[1] = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file holds: the conversation, the model that spoke, and the settings that were made by hand."""

    conversation: Conversation
    model: str
    options: Mapping[str, Any]


class SavedMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: Literal["user", "assistant", "tool"]
    content: str
    thoughts: str = ""
    calls: tuple[Call, ...] = ()
    call: str = ""


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a file; what has other fields, types or another version is refused."""

    woolly_chat: Literal[1]
    model: str
    system: str
    settings: dict[str, Any]
    messages: list[SavedMessage]


def place(word: str, folder: Path) -> Path:
    """The file that a word means: a name among the saved chats, or a path."""
    if NAME.fullmatch(word):
        return folder / f"{word.removesuffix('.json')}.json"
    if "/" not in word:
        raise RequestError(
            f"'{printable(word)}' is no name for a chat",
            suggestion="use letters, digits, dots and dashes, or give a path with a slash",
        )
    return user_path(word)


def listed(folder: Path) -> list[str]:
    """The names of the saved chats."""
    try:
        return sorted(path.stem for path in folder.glob("*.json") if NAME.fullmatch(path.name))
    except OSError:
        return []


def save(path: Path, saved: Saved) -> None:
    """Write a chat, in place of an older one if there is one, but never of another kind of file."""
    try:
        load(path)
    except NotFoundError:
        pass
    except FileError as error:
        raise FileError(f"there is such a file already: {error.message}", suggestion="choose another name") from None
    rows = [
        SavedMessage(turn.role, turn.content, turn.thoughts, turn.calls, turn.call) for turn in saved.conversation.turns
    ]
    file = File(VERSION, saved.model, saved.conversation.system, dict(saved.options), rows)
    write_private(path, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")


def load(path: Path) -> Saved:
    """The chat of a file; one that is not right is refused and changes nothing."""
    name, data = printable(path, 300), read_bytes(path, LIMITS.conversation)
    try:
        data.decode("utf-8")
        file = msgspec.json.decode(data, type=File)
        options = check(file.settings)
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 at byte {error.start:,}") from None
    except (msgspec.DecodeError, RequestError, RecursionError) as error:
        raise FileError(f"{name} is no saved chat: {printable(error, 200)}") from None
    if len(file.messages) > LIMITS.turns:
        raise FileError(f"{name} has {len(file.messages):,} messages; at most {LIMITS.turns:,} are read")
    turns = tuple(Turn(row.role, row.content, row.thoughts, row.calls, row.call) for row in file.messages)
    return Saved(Conversation(file.system, turns), file.model, options)
