"""Saved chats: one JSON file each. A file may come from anyone, so all of it is checked before any of it is used."""

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
from woolly.io.files import read_bytes, write_private
from woolly.limits import LIMITS
from woolly.request import Call
from woolly.system import user_path

VERSION: Literal[1] = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class SavedChat:
    """The conversation of a file, the name of its model, and the settings that the user changed."""

    conversation: Conversation
    model: str
    options: Mapping[str, Any]


class SavedMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: Literal["user", "assistant", "tool"]
    content: str
    thoughts: str = ""
    calls: tuple[Call, ...] = ()
    call: str = ""


class ChatFile(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a file; what has other fields, types or another version is refused."""

    woolly_chat: Literal[1]
    model: str
    system: str
    settings: dict[str, Any]
    messages: list[SavedMessage]


def path_of(word: str, folder: Path) -> Path:
    """The file that a word means: a name among the saved chats, or a path."""
    if NAME.fullmatch(word):
        return folder / f"{word.removesuffix('.json')}.json"
    if "/" not in word:
        raise RequestError(
            f"'{printable(word)}' is no name for a chat",
            suggestion="use letters, digits, dots and dashes, or give a path with a slash",
        )
    return user_path(word)


def chat_names(folder: Path) -> list[str]:
    """The names of the saved chats."""
    try:
        return sorted(path.stem for path in folder.glob("*.json") if NAME.fullmatch(path.name))
    except OSError:
        return []


def save(path: Path, saved: SavedChat) -> None:
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
    file = ChatFile(VERSION, saved.model, saved.conversation.system, dict(saved.options), rows)
    write_private(path, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")


def load(path: Path) -> SavedChat:
    """The chat of a file; a file that is not valid is refused."""
    name, data = printable(path, 300), read_bytes(path, LIMITS.conversation)
    try:
        data.decode("utf-8")
        file = msgspec.json.decode(data, type=ChatFile)
        options = check(file.settings)
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 at byte {error.start:,}") from None
    except (msgspec.DecodeError, RequestError, RecursionError) as error:
        raise FileError(f"{name} is no saved chat: {printable(error, 200)}") from None
    if len(file.messages) > LIMITS.turns:
        raise FileError(f"{name} has {len(file.messages):,} messages; at most {LIMITS.turns:,} are read")
    turns = tuple(Turn(row.role, row.content, row.thoughts, row.calls, row.call) for row in file.messages)
    return SavedChat(Conversation(file.system, turns), file.model, options)
