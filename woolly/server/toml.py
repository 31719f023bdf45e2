"""The settings file as text: on which line each key stands, what is wrong with it, and how one value is changed.

A change touches one line and leaves comments and order alone. What came out is read again before it is used, so a file
written in a way that this does not know is refused, never damaged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from woolly.config import FILE_KEYS, file_text, file_value, parse
from woolly.errors import FileError, NotFoundError, RequestError, WoollyError, printable
from woolly.server.settings import KEYS, WITHOUT_EFFECT, near, settings_of, typed

SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9_.\- ]+?)\s*\]\s*(?:#.*)?$")
LINE = re.compile(r"\s*([A-Za-z0-9_.\-]+)\s*=")
PLACE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a file: the line (0 where it is of none), and what."""

    line: int
    what: str


def problems(text: str) -> list[Problem]:
    """Everything that is wrong, in the order of the lines."""
    try:
        values = parse(text, "the file")
    except RequestError as error:
        place = PLACE.search(error.message)
        return [Problem(int(place[1]) if place else 0, error.message)]
    lines = places(text)
    found = []
    for key, value in values.items():
        try:
            _check(key, value)
        except RequestError as error:
            found.append(Problem(lines.get(key, 0), error.message))
    if not found:
        try:  # what is wrong only together: an address that others reach, and no key
            settings_of({key: typed(key, value) for key, value in values.items() if key in KEYS}, [], insecure=False)
        except RequestError as error:
            line = lines.get("server.host", lines.get("bind", lines.get("server.bind", 0)))
            found.append(Problem(line, str(error)))
    return sorted(found, key=lambda problem: problem.line)


def _check(key: str, value: Any) -> None:
    if key.startswith(WITHOUT_EFFECT) and key not in KEYS:
        return
    if key not in KEYS:
        raise RequestError(f"the setting '{printable(key)}' has no meaning{near(key)}")
    value = typed(key, value)
    if key in FILE_KEYS:
        file_value(key, value, f"the setting {key}")
    settings_of({key: value}, [], insecure=True)


def places(text: str) -> dict[str, int]:
    """The line of each key that is written as `key = value`, alone or below its `[section]`; the first line is 1."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        head, key = SECTION.match(line), LINE.match(line)
        if head:
            section = head[1].replace(" ", "") + "."
        elif key:
            found.setdefault(section + key[1], number)
    return found


def changed(text: str, key: str, value: Any) -> str:
    """The text with one value set: its line is replaced, or a line is added to its section."""
    _check(key, value)
    before = parse(text, "the settings file")
    section, _, name = key.rpartition(".")
    row = f"{name} = {literal(value)}"
    lines = text.splitlines()
    at = places(text).get(key)
    if at is not None:
        lines[at - 1] = f"{lines[at - 1].partition('=')[0].rstrip()} = {literal(value)}"
    else:
        heads = [i for i, line in enumerate(lines) if (head := SECTION.match(line)) and head[1] == section]
        if not section:
            lines.insert(0, row)
        elif heads:
            lines.insert(heads[0] + 1, row)
        else:
            lines += ([""] if lines else []) + [f"[{section}]", row]
    after = "\n".join(lines) + "\n"
    try:
        right = parse(after, "the settings file") == before | {key: value}
    except WoollyError:
        right = False
    if not right:
        raise FileError(
            f"the settings file writes '{key}' in a way that cannot be changed here",
            suggestion=f"write `{row}` below [{section}] by hand" if section else f"write `{row}` by hand",
        )
    return after


def literal(value: Any) -> str:
    """A value as TOML writes it: its texts, numbers, booleans and lists are those of JSON but for one sign."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_text(path: Path) -> str:
    """The text of the file, or nothing where there is none yet."""
    try:
        return file_text(path)
    except NotFoundError:
        return ""
