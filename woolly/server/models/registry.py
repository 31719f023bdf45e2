"""The registry of a server: which models a request may name, and which file a name means.

A name is compared with those of the models on this machine, and never opened as a path. It reads folders and headers
of files, so it runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from woolly import store
from woolly.config import Config, Settings
from woolly.errors import FileError, NotFoundError, RequestError, UnsupportedError, WoollyError, printable

if TYPE_CHECKING:
    from woolly.examine import Card, OutputKind

Fingerprint: TypeAlias = tuple[int, ...]  # differs where the content of a file has changed
ANY = ("", "default", "loaded", "current", "woolly-model")  # names that leave the choice to the server
EVERY_OTHER = "*"  # an alias for all names that mean no model
LATEST = ":latest"  # Ollama's clients add it to a name
ABILITIES: Mapping[OutputKind, str] = {  # what a model does that gives this
    "logits": "continues texts",
    "embedding": "makes embeddings",
    "rank": "ranks documents",
}

Installed: TypeAlias = Callable[[Config, Iterable[store.Model]], list[store.Model]]


class Registry:
    """installed: finds the models on this machine, beside those that the settings name."""

    def __init__(self, settings: Settings, config: Config, installed: Installed = store.installed) -> None:
        self.settings = settings
        self.config = config
        self._installed = installed
        self._cards: dict[Path, tuple[Fingerprint, Card]] = {}

    def find(self, name: str, wanted: OutputKind | None = None) -> store.Model:
        """The model that a name means. wanted: what it must give, where the name leaves the choice to the server."""
        models = self._models()
        return self._default(models, wanted) if name in ANY else self.choose(name, models)

    def choose(self, name: str, models: Sequence[store.Model]) -> store.Model:
        """The one of the models that a name means."""
        matches = self._meant(name, models)
        if len(matches) > 1:
            files = ", ".join(printable(model.path.name) for model in matches)
            raise RequestError(
                f"the name '{printable(name)}' fits {len(matches)} files: {files}",
                suggestion="rename one, or name its path when the server starts",
                code="model_error",
                param="model",
                error_code="AMBIGUOUS_MODEL",
            )
        if not matches:
            raise _unknown(name, sorted({model.name for model in models}))
        return matches[0]

    def is_meant(self, name: str, model: store.Model) -> bool:
        """Whether a name is one of this model's."""
        return bool(self._meant(name, [model]))

    def aliases_of(self, model: store.Model) -> list[str]:
        """The names that the settings give to this model."""
        aliases = self.settings.aliases
        return [name for name in aliases if name != EVERY_OTHER and self.is_meant(name, model)]

    @property
    def is_named(self) -> bool:
        """Whether the settings or the command line name the models that answer where a request names none."""
        settings = self.settings
        return bool(settings.default_model or settings.models or settings.configs or settings.preload)

    @property
    def stand_in(self) -> str | None:
        """The name of the model that answers under names that mean none: that of the alias for them, else the default
        one, if the settings name one or the server was started with a single one."""
        settings = self.settings
        if EVERY_OTHER in settings.aliases:
            return settings.aliases[EVERY_OTHER]
        count = len({*settings.models, *(row.path for row in settings.configs)}) + len(settings.preload)
        return "" if settings.default_model or count == 1 else None

    def find_file(self, text: str) -> store.Model:
        """The model of a path, which must lie in a model folder."""
        if len(text) > 4096 or "\0" in text:
            raise _unknown(text, [])
        wanted = Path(text)
        for model in self._models():
            if model.path.resolve() == wanted.resolve():
                return model
        if wanted.is_absolute() or ".." in wanted.parts:
            raise RequestError(
                "the path lies outside the model folders", suggestion="give the model's name", code="access_denied"
            )
        return self.find(wanted.name)

    def listed(self) -> list[tuple[store.Model, Card]]:
        """Every model with a name of its own, with the card of its file; the default one first."""
        models = self._models()
        default = next(iter(self._named_among(models)), None)
        return sorted(self._readable(models), key=lambda row: (row[0] != default, row[0].name))

    def card(self, model: store.Model) -> Card:
        """The card of a file, read again only where the file has changed."""
        now, known = fingerprint(model.path), self._cards.get(model.path)
        if known is None or known[0] != now:
            with loading():
                known = self._cards[model.path] = (now, _read_card(model.path))
        return known[1]

    def _meant(self, name: str, models: Sequence[store.Model]) -> list[store.Model]:
        """Those of the models that a name means, as it stands or else without Ollama's `:latest`."""
        for text in dict.fromkeys((name, name.removesuffix(LATEST))):
            text = self.settings.aliases.get(text.lower(), text)
            right = len(text) <= self.settings.limits.model_name and store.NAME.fullmatch(text) and ".." not in text
            if right and (matches := store.matching(text, models)):
                return matches
        return []

    def _default(self, models: list[store.Model], wanted: OutputKind | None) -> store.Model:
        """The model that answers where no name is given: of those that the server was started with, else of all, the
        first that was made for what is wanted, or else the first that can do it, too."""
        able: store.Model | None = None
        for model, card in self._with_cards(self._named_among(models)) if self.is_named else self._readable(models):
            if wanted in (None, card.gives):
                return model
            if able is None and can_give(card, wanted):
                able = model
        if able is not None:
            return able
        if self.is_named and not self._named_among(models):
            raise RequestError(
                "the model that answers where none is named is not here",
                suggestion="name one of GET /v1/models",
                code="model_error",
                param="model",
                error_code="MODEL_NOT_LOADED",
            )
        if wanted is None or not models:
            raise RequestError(
                "there is no model here",
                suggestion="put a .gguf file in the models folder, or name one when the server starts",
                code="model_error",
                error_code="MODEL_NOT_LOADED",
            )
        others = [printable(model.name) for model, card in self._readable(models) if can_give(card, wanted)]
        raise RequestError(
            f"no model {'that this server was started with' if self.is_named else 'here'} {ABILITIES[wanted]}",
            suggestion=f"name one that does, as {others[0]}" if others else "put one that does in the models folder",
            code="model_error",
            param="model",
            error_code="MODEL_NOT_LOADED",
        )

    def _named_among(self, models: Sequence[store.Model]) -> list[store.Model]:
        """Those of the models that the settings or the command line name, the default one first."""
        settings = self.settings
        meant = [
            self._meant(settings.default_model, models),
            *(self._at(path, models) for path in settings.models),
            *(self._meant(name, models) for name in settings.preload),
            *(self._at(row.path, models) for row in settings.configs),
        ]
        return list(dict.fromkeys(matches[0] for matches in meant if len(matches) == 1))

    def _at(self, path: Path, models: Sequence[store.Model]) -> list[store.Model]:
        """The model of a path; a gateway, whose replicas have the files, knows it by its name."""
        return [model for model in models if model.path == path] or self._meant(store.identity(path), models)

    def _models(self) -> list[store.Model]:
        """The models that the settings name, and those on this machine whose links do not lead out of their folder."""
        return [model for model in self._installed(self.config, self._named()) if not model.outside]

    def _named(self) -> Iterator[store.Model]:
        files = [(config.path, config.name) for config in self.settings.configs]
        for path, name in (*files, *((path, "") for path in self.settings.models)):
            with suppress(OSError):  # the file is gone
                yield replace(store.model_at(path), name=name, chosen=True)

    def _readable(self, models: Sequence[store.Model]) -> Iterator[tuple[store.Model, Card]]:
        """Each model that its name alone means, with its card."""
        same: dict[str, list[store.Model]] = {}
        for model in models:
            same.setdefault(model.name.lower(), []).append(model)
        meant = (store.matching(name, candidates) for name, candidates in same.items())
        return self._with_cards(matches[0] for matches in meant if len(matches) == 1)

    def _with_cards(self, models: Iterable[store.Model]) -> Iterator[tuple[store.Model, Card]]:
        for model in models:
            with suppress(WoollyError, OSError):  # a file that is no model is left out; loading it by name says why
                yield model, self.card(model)


def can_give(card: Card, wanted: OutputKind | None) -> bool:
    """Whether a model gives what is wanted; one that continues texts makes embeddings, too."""
    return wanted in (None, card.gives) or (wanted == "embedding" and card.gives == "logits")


@contextmanager
def loading() -> Iterator[None]:
    """What is wrong with the file of a model, or with the settings that it is loaded by, is not the request's fault."""
    try:
        yield
    except (FileError, UnsupportedError, RequestError) as error:
        failed = copy(error)
        failed.code = "load_failed"
        raise failed from error


def fingerprint(path: Path) -> Fingerprint:
    try:
        stat = path.stat()
    except OSError:
        raise NotFoundError(f"the file of '{printable(path.stem)}' is gone", code="model_not_found") from None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _read_card(path: Path) -> Card:
    from woolly import examine, gguf  # NumPy comes with them

    with gguf.open(path) as file:
        return examine.read_card(file)


def read_meta(path: Path) -> dict[str, Any]:
    """The metadata of a file."""
    from woolly import gguf

    with gguf.open(path) as file:
        return dict(file.meta)


def _unknown(name: str, known: list[str]) -> NotFoundError:
    return NotFoundError(
        f"there is no model '{printable(name)}' here",
        suggestion="GET /v1/models lists the models",
        code="model_not_found",
        param="model",
        model=printable(name),
        available_models=known,
    )
