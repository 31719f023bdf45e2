"""Adapters as a user names them: FILE, or FILE=SCALE."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from woolly.errors import NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.settings import user_path

PathText: TypeAlias = str | os.PathLike[str]
Adapted: TypeAlias = PathText | Iterable[PathText] | Mapping[str, PathText]


class AdapterFile(NamedTuple):
    """A file, how it is called, and by what it counts where a request does not say."""

    name: str
    path: Path
    scale: float


def adapter_files(given: Adapted) -> tuple[AdapterFile, ...]:
    """One adapter or several; a mapping gives their names, which are else those of the files without their ending."""
    if isinstance(given, str | os.PathLike):
        given = (given,)
    items = given.items() if isinstance(given, Mapping) else (("", text) for text in given)
    found = tuple(_file(name, text) for name, text in items)
    if len(found) > LIMITS.adapters:
        raise RequestError(f"{len(found)} adapters are given; at most {LIMITS.adapters} are loaded", param="lora")
    names = [file.name for file in found]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(
                f"two adapters are called '{printable(name)}'", suggestion="give them other names", param="lora"
            )
    return found


def _file(name: str, text: PathText) -> AdapterFile:
    if not isinstance(text, str | os.PathLike):
        raise RequestError(f"lora is a path or several, not {type(text).__name__}", param="lora")
    path, scale = user_path(text), 1.0
    before, equals, number = os.fspath(text).rpartition("=")
    if equals and not path.exists():
        try:
            path, scale = user_path(before), float(number)
        except ValueError:
            scale = math.nan
        if not abs(scale) <= LIMITS.lora_scale:
            raise RequestError(
                f"the scale of the adapter '{printable(text)}' is no number from -{LIMITS.lora_scale:g} to "
                f"{LIMITS.lora_scale:g}",
                param="lora",
            )
    if not path.is_file():
        raise NotFoundError(f"there is no adapter '{printable(path)}'")
    return AdapterFile(name or path.stem, path, scale)
