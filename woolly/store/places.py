"""Every model that is on this machine, whoever put it there; nothing is opened, copied or changed.

One function for each place, in the order in which they are asked. A file that is reached in two ways counts once, for
the first of them, under all its names.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from woolly.config import Config
from woolly.limits import LIMITS
from woolly.store import ollama
from woolly.store.catalogue import CATALOGUE, Entry
from woolly.store.folders import is_file, is_inside, is_weights, read_small, walk
from woolly.store.model import Model, identity, parts_of

HF = "hf"  # the folder inside our models folder for what came from the hub: hf/OWNER/REPO/FILE


def installed(config: Config, named: Iterable[Model] = ()) -> list[Model]:
    """All models: those that a setting names, those of the catalogue, then the others."""
    found: dict[Path, Model] = {}
    places = (_catalogue, _folders, _pulled, _hub, _lm_studio, _ollama)
    for model in chain(named, *(place(config) for place in places)):
        with contextlib.suppress(OSError):
            real = model.path.resolve()
            known = found.get(real)
            names = (model.name.lower(), *model.also)
            found[real] = model if known is None else replace(known, also=(*known.also, *names))
    return list(found.values())


def listed(config: Config) -> list[Path]:
    """The files of all models that lie where they seem to lie: what a name from outside, or a survey, may reach."""
    return [model.path for model in installed(config) if not model.outside]


def find(entry: Entry, config: Config) -> Model | None:
    """A model of the catalogue if it is here: inside an installed package, or in a model folder with its right size."""
    places = [("woolly", folder) for folder in config.folders]
    spec = importlib.util.find_spec(entry.module)
    if spec is not None and spec.submodule_search_locations:
        places = [("package", Path(place)) for place in spec.submodule_search_locations] + places
    for owner, folder in places:
        path = folder / entry.file
        if is_file(path) and path.stat().st_size == entry.nbytes:
            also = (f"{entry.name}:{entry.tag}", identity(path).lower())
            return replace(model_at(path, owner, name=entry.name, also=also), chosen=True)
    return None


def _catalogue(config: Config) -> Iterator[Model]:
    for entry in CATALOGUE:
        model = find(entry, config)
        if model is not None:
            yield model


def _folders(config: Config) -> Iterator[Model]:
    """The user's own folders: a link may lead anywhere from there, but then the model is not for the network."""
    for folder in config.folders:
        try:
            paths = sorted(path for path in folder.iterdir() if is_weights(path) and is_file(path))
        except OSError:  # not there, or not ours to read
            continue
        for path in paths:
            yield from _one(path, "woolly", outside=not is_inside(path, folder.resolve()))


def _pulled(config: Config) -> Iterator[Model]:
    yield from _repos(config.models / HF, "woolly")


def _lm_studio(config: Config) -> Iterator[Model]:
    for root in config.lm_studio:
        yield from _repos(root, "lm_studio")


def _repos(root: Path, owner: str) -> Iterator[Model]:
    """The models of a folder that is laid out as OWNER/REPO/FILE."""
    for path in walk(root):
        words = path.relative_to(root).parts
        if is_weights(path) and len(words) > 2:
            yield from _one(path, owner, repo="/".join(words[:2]), file="/".join(words[2:]))


def _hub(config: Config) -> Iterator[Model]:
    """The hub cache: models--OWNER--REPO/snapshots/COMMIT/FILE; of several commits the one that `main` names, then the
    newest, gives a file its meaning."""
    try:
        top = config.hub.resolve(strict=True)
        repos = sorted(islice(config.hub.glob("models--*--*"), LIMITS.folder_entries))
    except (OSError, RuntimeError):
        return
    for place in repos:
        repo = "/".join(place.name.split("--")[1:3])
        main = (read_small(place / "refs" / "main", 100) or b"").decode("ascii", "replace").strip()
        seen: set[str] = set()
        for snapshot in _snapshots(place / "snapshots", main):
            for path in walk(snapshot, 2, within=top):  # links to the blobs beside it
                file = path.relative_to(snapshot).as_posix()
                if is_weights(path) and file not in seen:
                    seen.add(file)
                    yield from _one(path, "hub", repo=repo, file=file)


def _snapshots(folder: Path, main: str) -> list[Path]:
    def age(path: Path) -> tuple[bool, float]:
        return path.name != main, -path.stat().st_mtime

    try:
        return sorted((path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()), key=age)
    except OSError:
        return []


def _ollama(config: Config) -> Iterator[Model]:
    for root in config.ollama:
        yield from ollama.models(root)


def _one(path: Path, owner: str, *, repo: str = "", file: str = "", outside: bool = False) -> Iterator[Model]:
    """The model of a path, unless the file went away in the meantime."""
    with contextlib.suppress(OSError):
        also = (repo.lower(), f"hf:{repo}/{file}".lower()) if repo else ()
        yield model_at(path, owner, also=also, repo=repo, file=file, outside=outside)


def model_at(
    path: Path,
    owner: str = "woolly",
    *,
    name: str = "",
    also: tuple[str, ...] = (),
    repo: str = "",
    file: str = "",
    outside: bool = False,
) -> Model:
    """The model of a path; OSError where there is no file. name: what it goes by, otherwise the stem of the file."""
    facts = [part.stat() for part in parts_of(path)]
    return Model(
        name=name or identity(path),
        id=identity(path),
        path=path,
        owner=owner,
        nbytes=sum(fact.st_size for fact in facts),
        modified=max(fact.st_mtime for fact in facts),
        also=also,
        repo=repo,
        file=file,
        outside=outside,
    )
