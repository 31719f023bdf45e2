"""The settings file as text: what is wrong with it, by lines, and how one value is changed.

A change leaves comments and order alone. The new text is parsed and checked before it is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from woolly.config import BY_KEY, WITHOUT_EFFECT, file_text, parse, unknown_keys
from woolly.errors import FileError, NotFoundError, RequestError, WoollyError
from woolly.server.settings import settings_of

SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9_.\- ]+?)\s*\]\s*(?:#.*)?$")
LINE = re.compile(r"\s*([A-Za-z0-9_.\-]+)\s*=")
PLACE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file: its line (0 where it belongs to none), and the message."""

    line: int
    what: str


def problems(text: str) -> list[Problem]:
    """Everything that is wrong, in the order of the lines."""
    try:
        values = parse(text, "the file")
    except RequestError as error:
        place = PLACE.search(error.message)
        return [Problem(int(place[1]) if place else 0, error.message)]
    lines = _lines(text)
    faults = []
    for key, value in values.items():
        try:
            check(key, value)
        except RequestError as error:
            faults.append(Problem(lines.get(key, 0), error.message))
    if not faults:
        try:  # rules across settings: an address that other machines reach needs a key
            settings_of(values, {}, {}, insecure=False)
        except RequestError as error:
            line = lines.get("server.host", lines.get("bind", lines.get("server.bind", 0)))
            faults.append(Problem(line, str(error)))
    return sorted(faults, key=lambda problem: problem.line)


def check(key: str, value: Any) -> None:
    """Refuse a key that has no meaning, or a value that it cannot have."""
    if key in BY_KEY:
        BY_KEY[key].read(value, f"the setting {key}")
        settings_of({key: value}, {}, {}, insecure=True)
    elif not key.startswith(WITHOUT_EFFECT):
        raise RequestError(unknown_keys([key])[0])


def _lines(text: str) -> dict[str, int]:
    """The line of each key that is written as `key = value`, alone or below its `[section]`; the first line is 1."""
    line_of: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        head, key = SECTION.match(line), LINE.match(line)
        if head:
            section = head[1].replace(" ", "") + "."
        elif key:
            line_of.setdefault(section + key[1], number)
    return line_of


def changed(text: str, key: str, value: Any) -> str:
    """The text with one value set."""
    import tomlkit  # imported here because only a change needs it
    from tomlkit.exceptions import TOMLKitError

    check(key, value)
    before = parse(text, "the settings file")
    *sections, name = key.split(".")
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for section in sections:
            table = table.setdefault(section, tomlkit.table())
        table[name] = value
        after = tomlkit.dumps(document)
        right = parse(after, "the settings file") == before | {key: value}
    except (WoollyError, TOMLKitError, RecursionError, TypeError, AttributeError):
        right = False
    if not right:
        raise FileError(f"the settings file writes '{key}' in a way that cannot be changed here; change it by hand")
    return after


def read_text(path: Path) -> str:
    """The text of the file, or nothing where there is none yet."""
    try:
        return file_text(path)
    except NotFoundError:
        return ""
