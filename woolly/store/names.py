"""Which file a name means.

A path to a file is that file. Otherwise case, leading folders and the ending `.gguf` do not matter: `smollm2` and
`smollm2:135m-q4_1` are rows of the catalogue, everything else is the stem of a file in a model folder. A set of split
files goes by the stem of the set and is opened by its first part. A stem that fits two files is refused with the list.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from woolly.config import Config, read_config
from woolly.errors import NotFoundError, RequestError, printable
from woolly.store.catalogue import CATALOGUE, DEFAULT, Entry
from woolly.store.download import Progress, fetch, find

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
PART = re.compile(r"-(\d{5})-of-\d{5}$")


def resolve(name: str | os.PathLike[str], *, config: Config | None = None, progress: Progress | None = None) -> Path:
    """The file that a path or a name means; a model of the catalogue is downloaded if it is not here."""
    text = os.fspath(name)
    path = _file(text)
    if path is not None:
        return path
    if not isinstance(name, str) or _is_path(text):
        if _is_there(text):
            return Path(text).expanduser()  # a folder, a pipe, a device: the reader says what it is, and refuses it
        raise NotFoundError(f"there is no file '{printable(text)}'", path=text)
    settings = read_config() if config is None else config
    row = entry(text)
    if row is not None:
        return find(row, settings) or fetch(row, settings, progress)
    return _in_folders(text, settings)


def listed(config: Config) -> list[Path]:
    """Every model file that lies in a model folder or belongs to an installed package of the catalogue.

    What a link leads to outside these places is not listed: a name that comes over the network may not reach it.
    """
    found = [path for row in CATALOGUE if (path := find(row, config)) is not None]
    roots = [folder.resolve() for folder in (*config.folders, config.hub)]
    for paths in _stems(config).values():
        found += [path for path in paths if any(path.resolve().is_relative_to(root) for root in roots)]
    return found


def identity(path: Path) -> str:
    """The name that a file goes by: its stem, without the number of a part; dots inside stay."""
    stem = path.name[: -len(path.suffix)] if path.suffix.lower() == ".gguf" else path.name
    return PART.sub("", stem)


def is_model(word: str, *, config: Config | None = None) -> bool:
    """Whether a lone word of the command line means a model: a path, a name we know, or anything without a space."""
    if _file(word) is not None or entry(word) is not None or word.startswith("hf:") or not re.search(r"\s", word):
        return True
    return _stem(word) in _stems(read_config() if config is None else config)


def _file(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long for a path, a NUL inside, no such user
        return None


def _is_path(text: str) -> bool:
    """Whether the text can only be meant as a path."""
    return text.startswith(("/", "./", "../", "~"))


def _is_there(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def entry(text: str) -> Entry | None:
    """The row of the catalogue that a name means."""
    name, _, tag = text.lower().partition(":")
    return next((row for row in CATALOGUE if row.name == name and tag in ("", row.tag)), None)


def _in_folders(text: str, config: Config) -> Path:
    if text.startswith("hf:"):
        raise NotFoundError(
            f"'{printable(text)}' is on the hub, and this version does not download from there",
            suggestion="download the .gguf file by other means and give its path",
        )
    stems, stem = _stems(config), _stem(text)
    found = stems.get(stem, [])
    if len(found) == 1:
        return found[0]
    if found:
        paths = ", ".join(printable(path, 300) for path in found)
        raise RequestError(
            f"the name '{printable(text)}' fits {len(found)} files: {paths}",
            suggestion="give the path of one of them",
            param="model",
        )
    known = sorted({row.name for row in CATALOGUE} | set(stems)) if NAME.fullmatch(text) else []
    near = [f"'{printable(word)}'" for word in difflib.get_close_matches(stem, known, n=3, cutoff=0.5)]
    if near:
        suggestion = f"did you mean {' or '.join(near)}?"
    else:
        suggestion = f"give the path of a .gguf file, put it in {printable(config.models, 300)}, or use '{DEFAULT}'"
    raise NotFoundError(f"there is no model '{printable(text)}' here", suggestion=suggestion, model=text)


def _stem(text: str) -> str:
    """The name as it is compared: last component, lower case, without the ending and the number of a part."""
    last = text.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].lower()
    return PART.sub("", last.removesuffix(".gguf"))


def _stems(config: Config) -> dict[str, list[Path]]:
    """All model files of the folders by stem; a file that is reached in two ways counts once."""
    stems: dict[str, dict[Path, Path]] = {}
    for path in _files(config):
        part = PART.search(path.stem)
        if part is None or int(part[1]) == 1:
            stems.setdefault(_stem(path.name), {}).setdefault(path.resolve(), path)
    return {stem: list(paths.values()) for stem, paths in stems.items()}


def _files(config: Config) -> Iterator[Path]:
    for folder in config.folders:
        yield from _gguf(folder, "*")
    yield from _gguf(config.hub, "models--*/snapshots/*/*")
    yield from _gguf(config.hub, "models--*/snapshots/*/*/*")


def _gguf(folder: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from sorted(path for path in folder.glob(pattern) if path.suffix.lower() == ".gguf" and path.is_file())
    except OSError:  # a folder we may not read holds no models for us
        return
