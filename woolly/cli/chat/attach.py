"""`@file` in a message: the text of the file goes with it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from woolly.errors import RequestError, printable
from woolly.io.files import read_text
from woolly.limits import LIMITS
from woolly.system import user_path

# Only at the beginning of a word, so that a mail address does not match. A path with spaces stands in quotes.
_WORD = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
_AFTER = ",;:!?)]}>'\""  # what may follow a path in a sentence


@dataclass(frozen=True, slots=True)
class ExpandedMessage:
    """A message with the texts of its files appended, the names of these, and the @words that are no files."""

    text: str
    files: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def attach(message: str) -> ExpandedMessage:
    """Read the files that a message names. A word that names none stays a word: `@property` is no file."""
    files: dict[str, str] = {}
    words: list[str] = []
    for match in _WORD.finditer(message):
        word = match[1] or match[2]
        path = _file(word) if match[1] else _file(word) or _file(word.rstrip(_AFTER).rstrip("."))
        if path is None:
            words.append(word)
        elif str(path) not in files:
            if len(files) == LIMITS.attachments:
                raise RequestError(f"a message can have {LIMITS.attachments} files", suggestion="send fewer at once")
            files[str(path)] = read_text(path, LIMITS.attachment)
    parts = [message, *(f"--- {name}\n{text.rstrip()}\n--- end of {name}" for name, text in files.items())]
    return ExpandedMessage("\n\n".join(parts), tuple(map(printable, files)), tuple(map(printable, words)))


def _file(word: str) -> Path | None:
    """The path if something other than a folder is there."""
    try:
        path = user_path(word)
        return path if word and path.exists() and not path.is_dir() else None
    except (OSError, ValueError):  # too long for a path, a NUL inside
        return None
