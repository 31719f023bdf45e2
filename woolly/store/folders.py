"""Folders that anybody may have filled: a walk has limits of depth and of entries, and never leaves the folder."""

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
    Whatever cannot be read is skipped. The walk ends at the limit of entries.
    """
    try:
        top = (within or root).resolve(strict=True)
    except (OSError, RuntimeError):
        return
    left = LIMITS.folder_entries
    pending = [(root, 0)]
    while pending and left > 0:
        folder, level = pending.pop()
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
        pending += reversed(deeper)


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


def is_model_file(path: Path) -> bool:
    """Whether a file's name is that of a model: not a later part of a set, nor a vision encoder (mmproj)."""
    part = PART.search(path.stem)
    first = part is None or int(part[1]) == 1
    return path.suffix.lower() == ".gguf" and first and not path.name.lower().startswith("mmproj")


def read_small(path: Path, limit: int) -> bytes | None:
    """The bytes of a small regular file; None if it is not there, is something else, or is larger than the limit."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for its writer
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = file.read(limit + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= limit else None


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    listing: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                listing.append(entry)
                if len(listing) >= most:
                    break
    except OSError:  # a folder that cannot be read has no models
        return []
    return sorted(listing, key=lambda entry: entry.name)
