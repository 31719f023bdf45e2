"""Adapters as a user names them: FILE, or FILE=SCALE."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from woolly.config import Adapted, PathText
from woolly.errors import NotFoundError, RequestError, printable
from woolly.limits import LIMITS
from woolly.system import user_path


class AdapterFile(NamedTuple):
    """A LoRA file, its name, and its scale in requests that name none."""

    name: str
    path: Path
    scale: float


def adapter_files(lora: Adapted) -> tuple[AdapterFile, ...]:
    """The adapter files of one value or several; a mapping names them, otherwise the stems of the files do."""
    if isinstance(lora, str | os.PathLike):
        lora = (lora,)
    items = lora.items() if isinstance(lora, Mapping) else (("", text) for text in lora)
    files = tuple(_file(name, text) for name, text in items)
    if len(files) > LIMITS.adapters:
        raise RequestError(f"{len(files)} adapters are given; at most {LIMITS.adapters} are loaded", param="lora")
    names = [file.name for file in files]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(
                f"two adapters are called '{printable(name)}'", suggestion="give them other names", param="lora"
            )
    return files


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
