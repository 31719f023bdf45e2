"""The registry of a server: which models a request may name, and which file a name means.

A name is compared with those of the models on this machine, and never opened as a path. It reads folders and headers
of files, so it runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from woolly import store
from woolly.config import Config, Settings
from woolly.errors import NotFoundError, RequestError, WoollyError, printable

if TYPE_CHECKING:
    from woolly.examine import Card

Fingerprint: TypeAlias = tuple[int, ...]  # differs where the content of a file has changed
ANY = ("", "default", "loaded", "current", "woolly-model")  # names that leave the choice to the server


Installed: TypeAlias = Callable[[Config, Iterable[store.Model]], list[store.Model]]


class Registry:
    """installed: finds the models on this machine, beside those that the settings name."""

    def __init__(self, settings: Settings, config: Config, installed: Installed = store.installed) -> None:
        self.settings = settings
        self.config = config
        self._installed = installed
        self._cards: dict[Path, tuple[Fingerprint, Card]] = {}

    def find(self, name: str) -> store.Model:
        """The model that a name means; the default one where the name leaves the choice to the server."""
        models = self._models()
        if name in ANY:
            default = self._default(models)
            if default is None:
                raise RequestError(
                    "there is no model here",
                    suggestion="put a .gguf file in the models folder, or name one when the server starts",
                    code="model_error",
                    error_code="MODEL_NOT_LOADED",
                )
            return default
        name = self.alias(name)
        right = len(name) <= self.settings.limits.model_name and store.NAME.fullmatch(name) and ".." not in name
        matches = store.matching(name, models) if right else []
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
            raise _unknown(name, sorted({model.id for model in models}))
        return matches[0]

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
        """Every model with an id of its own, with the card of its file; the default one first."""
        models = self._models()
        default = self._default(models)
        return sorted(self._readable(models), key=lambda row: (row[0] != default, row[0].id))

    def alias(self, name: str) -> str:
        return self.settings.aliases.get(name.lower(), name)

    def card(self, model: store.Model) -> Card:
        """The card of a file, read again only where the file has changed."""
        now, known = fingerprint(model.path), self._cards.get(model.path)
        if known is None or known[0] != now:
            known = self._cards[model.path] = (now, _read_card(model.path))
        return known[1]

    def _default(self, models: list[store.Model]) -> store.Model | None:
        """The model that the settings name as the default, otherwise the first."""
        if not self.settings.default_model:
            return next((model for model, _ in self._readable(models)), None)
        matches = store.matching(self.alias(self.settings.default_model), models)
        return matches[0] if len(matches) == 1 else None

    def _models(self) -> list[store.Model]:
        """The models that the settings name, and those on this machine whose links do not lead out of their folder."""
        return [model for model in self._installed(self.config, self._named()) if not model.outside]

    def _named(self) -> Iterator[store.Model]:
        files = [(config.path, config.name) for config in self.settings.configs]
        for path, name in (*files, *((path, "") for path in self.settings.models)):
            with suppress(OSError):  # the file is gone
                model = store.model_at(path, name=name)
                yield replace(model, id=model.name, chosen=True)

    def _readable(self, models: list[store.Model]) -> Iterator[tuple[store.Model, Card]]:
        same: dict[str, list[store.Model]] = {}
        for model in models:
            same.setdefault(model.id.lower(), []).append(model)
        for id_, candidates in same.items():
            meant = store.matching(id_, candidates)
            with suppress(WoollyError, OSError):  # a file that is no model is left out; loading it by name says why
                if len(meant) == 1:
                    yield meant[0], self.card(meant[0])


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
