"""Every model that is on this machine, whichever program put it there; nothing is opened, copied or changed.

One function for each place, in the order in which they are asked. A file with several paths counts once, at
the first place that has it, under all its names.
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
from woolly.store.catalogue import CATALOGUE, CatalogueEntry
from woolly.store.folders import is_file, is_inside, is_model_file, read_small, walk
from woolly.store.model import Model, identity, parts_of

HF = "hf"  # the folder inside our models folder for what came from the hub: hf/OWNER/REPO/FILE


def installed(config: Config, named: Iterable[Model] = ()) -> list[Model]:
    """All models: those that a setting names, those of the catalogue, then the others. One whose setting gives it no
    name has that of the place where its file is found, too."""
    by_path: dict[Path, Model] = {}
    places = (_catalogue, _folders, _pulled, _hub, _lm_studio, _ollama)
    for model in chain(named, *(place(config) for place in places)):
        with contextlib.suppress(OSError):
            real = model.path.resolve()
            known = by_path.get(real)
            names = filter(None, (model.name.lower(), *model.also))
            by_path[real] = (
                model if known is None else replace(known, name=known.name or model.name, also=(*known.also, *names))
            )
    return [replace(model, name=model.name or identity(model.path)) for model in by_path.values()]


def paths_inside_folders(config: Config) -> list[Path]:
    """The files of all models that no link leads out of their folder to: what a survey may open."""
    return [model.path for model in installed(config) if not model.outside]


def find_entry(entry: CatalogueEntry, config: Config) -> Model | None:
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


def name_of(path: Path) -> str:
    """The name that a file goes by: that of the catalogue, else its stem; none where its own name says nothing, as that
    of one of Ollama's blobs."""
    with contextlib.suppress(OSError):
        for entry in CATALOGUE:
            if path.name == entry.file and path.stat().st_size == entry.nbytes:
                return entry.name
    return identity(path) if path.suffix.lower() == ".gguf" else ""


def _catalogue(config: Config) -> Iterator[Model]:
    for entry in CATALOGUE:
        model = find_entry(entry, config)
        if model is not None:
            yield model


def _folders(config: Config) -> Iterator[Model]:
    """The user's own folders. A link may lead out of them, but then requests over HTTP cannot reach the model."""
    for folder in config.folders:
        try:
            paths = sorted(path for path in folder.iterdir() if is_model_file(path) and is_file(path))
        except OSError:  # the folder does not exist or cannot be read
            continue
        for path in paths:
            yield from _model_if_there(path, "woolly", outside=not is_inside(path, folder.resolve()))


def _pulled(config: Config) -> Iterator[Model]:
    yield from _repos(config.models / HF, "woolly")


def _lm_studio(config: Config) -> Iterator[Model]:
    for root in config.lm_studio:
        yield from _repos(root, "lm_studio")


def _repos(root: Path, owner: str) -> Iterator[Model]:
    """The models of a folder that is laid out as OWNER/REPO/FILE."""
    for path in walk(root):
        words = path.relative_to(root).parts
        if is_model_file(path) and len(words) > 2:
            yield from _model_if_there(path, owner, repo="/".join(words[:2]), file="/".join(words[2:]))


def _hub(config: Config) -> Iterator[Model]:
    """The hub cache: models--OWNER--REPO/snapshots/COMMIT/FILE; where several commits have a file, that of `main`
    counts, then the newest."""
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
            for path in walk(snapshot, 2, within=top):  # snapshots link to blobs in the folder of the repo
                file = path.relative_to(snapshot).as_posix()
                if is_model_file(path) and file not in seen:
                    seen.add(file)
                    yield from _model_if_there(path, "hub", repo=repo, file=file)


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


def _model_if_there(
    path: Path, owner: str, *, repo: str = "", file: str = "", outside: bool = False
) -> Iterator[Model]:
    """The model of a path, or none where the file has been removed in the meantime."""
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
    """The model of a path; OSError where there is no file. name: its own; by default the stem of the file."""
    facts = [part.stat() for part in parts_of(path)]
    return Model(
        name=name or identity(path),
        path=path,
        owner=owner,
        nbytes=sum(fact.st_size for fact in facts),
        modified=max(fact.st_mtime for fact in facts),
        also=also,
        repo=repo,
        file=file,
        outside=outside,
    )
