"""Folders that anybody may have filled: looked through within bounds, and never out of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from woolly.limits import LIMITS
from woolly.store.model import PART


def walk(root: Path, depth: int = LIMITS.folder_depth, *, within: Path | None = None) -> Iterator[Path]:
    """Every regular file below a folder, in the order of names.

    A link counts if it leads to a file inside the folder, or inside `within`. Folders that are links are not entered.
    What cannot be read is not there. The walk ends at the limit of entries.
    """
    try:
        top = (within or root).resolve(strict=True)
    except (OSError, RuntimeError):
        return
    left = LIMITS.folder_entries
    todo = [(root, 0)]
    while todo and left > 0:
        folder, level = todo.pop()
        entries = _entries(folder, left)
        left -= len(entries)
        deeper = []
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                if level < depth:
                    deeper.append((path, level + 1))
            elif is_inside(path, top) and is_file(path):
                yield path
        todo += reversed(deeper)


def is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def is_inside(path: Path, top: Path) -> bool:
    """Whether a path, with every link followed, lies below a folder that is itself resolved."""
    try:
        return path.resolve(strict=True).is_relative_to(top)
    except (OSError, RuntimeError, ValueError):
        return False


def is_weights(path: Path) -> bool:
    """Whether a name is that of a model that begins here: not a later part of a set, nor the eyes of another model."""
    part = PART.search(path.stem)
    first = part is None or int(part[1]) == 1
    return path.suffix.lower() == ".gguf" and first and not path.name.lower().startswith("mmproj")


def read_small(path: Path, limit: int) -> bytes | None:
    """The bytes of a small regular file; None if it is not there, is something else, or is larger than the limit."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in a file's place must not hold us
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = file.read(limit + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= limit else None


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry)
                if len(found) >= most:
                    break
    except OSError:  # a folder we may not read holds no models for us
        return []
    return sorted(found, key=lambda entry: entry.name)
