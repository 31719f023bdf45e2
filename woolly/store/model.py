"""A model that is on this machine: its names, its file, and the program that owns it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]  # bytes so far, bytes in all; called a few times a second

PART = re.compile(r"-(\d{5})-of-(\d{5})$")

OWNERS = {  # the program that put the file there -> its name in messages
    "woolly": "Woolly",
    "package": "an installed package",
    "hub": "the Hugging Face cache",
    "lm_studio": "LM Studio",
    "ollama": "Ollama",
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model file on this machine, read in place whatever program keeps it."""

    name: str  # what a user types, and is shown
    path: Path  # of the first part, where the model is a set of files
    owner: str  # a row of OWNERS
    nbytes: int  # of all parts
    modified: float  # seconds since 1970
    also: tuple[str, ...] = ()  # other names, in lower case
    repo: str = ""  # `owner/repo` on the hub, where it came from there
    file: str = ""  # its path in that repo
    chosen: bool = False  # the catalogue or a setting names it, so it wins over others of the same name
    outside: bool = False  # a link leads out of its folder to it: only local commands may open it


def identity(path: Path) -> str:
    """The name that a file goes by: its stem, without the number of a part; dots inside stay."""
    stem = path.name[: -len(path.suffix)] if path.suffix.lower() == ".gguf" else path.name
    return PART.sub("", stem)


def parts_of(path: Path) -> list[Path]:
    """The files of the set that a first part begins, as far as they are there; a lone file is its own set."""
    match = PART.search(path.stem)
    if match is None:
        return [path]
    stem, count = path.stem[: match.start()], int(match[2])
    names = (f"{stem}-{number:05}-of-{match[2]}{path.suffix}" for number in range(1, min(count, 1_000) + 1))
    return [path.with_name(name) for name in names if path.with_name(name).is_file()] or [path]
