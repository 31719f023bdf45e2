"""The models of a server: which one a request means, and what is to be known of each.

Owned by the event loop; files are read in threads. Which are loaded, and how long each stays, knows loader.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from woolly import store
from woolly.config import Config, Settings
from woolly.errors import BusyError, NotFoundError, WoollyError, printable
from woolly.server.models.digests import Digests
from woolly.server.models.loaded import LoadedModel, LoadModel, load_llm
from woolly.server.models.loader import Loader
from woolly.server.models.records import ModelRecord, record
from woolly.server.models.registry import ANY, Installed, Registry, can_give, read_meta
from woolly.server.models.threads import FileThreads

if TYPE_CHECKING:  # NumPy comes with them
    from woolly.engine.tally import Tally
    from woolly.examine import Card, OutputKind

NAMES, NAMES_S = 1024, 5.0  # names whose meaning is remembered, and for how long: a folder may get a better file


class Models:
    def __init__(
        self, settings: Settings, config: Config, load: LoadModel = load_llm, installed: Installed = store.installed
    ) -> None:
        self.settings = settings
        self.config = config
        self.registry = Registry(settings, config, installed)
        self._threads = FileThreads()
        self._loader = Loader(settings, config, self.registry, load, self._threads, self._forget_unknown)
        self._digests = Digests(self._threads)
        self._defaults: dict[OutputKind | None, str] = {}  # the id of what answers where no model is named, by what
        self._by_hand: store.Model | None = None  # the last that somebody asked to be loaded
        self._preloads = 0  # models of the start that are not there yet, also while their files are looked for
        self._missing: dict[str, WoollyError] = {}  # why models of the start could not be loaded
        self._names: dict[str, tuple[str, float]] = {}  # which id a name means, or none, and until when it is believed

    def begin(self) -> None:
        """Begin the threads that read files and load."""
        self._threads.begin()

    @property
    def current(self) -> LoadedModel | None:
        """The loaded model that answers where none is named; as long as nobody has asked so, the one loaded first."""
        asked: tuple[OutputKind | None, ...] = (None, "logits", "embedding", "rank")
        defaults = (self._loader.loaded.get(self._defaults.get(wanted, "")) for wanted in asked)
        return next(filter(None, defaults), None) or next(iter(self._loader.loaded.values()), None)

    @property
    def loaded(self) -> list[LoadedModel]:
        return list(self._loader.loaded.values())

    def tallies(self) -> dict[str, Tally]:
        """What the engines have counted since the start, by the model's id; those of unloaded models too."""
        return self._loader.tallies()

    @property
    def loading(self) -> bool:
        return self._loader.busy or self._preloads > 0

    # Records

    async def records(self) -> list[ModelRecord]:
        """A record of each model that a request may name; the current or default one first."""
        listed = await self._threads.run(self.registry.listed)
        current = self.current.id if self.current is not None else None
        return sorted((self._record(*row) for row in listed), key=lambda row: (row.id != current, not row.loaded))

    async def record(self, name: str) -> ModelRecord:
        model = await self._find(name)
        return self._record(model, await self._threads.run(self.registry.card, model))

    async def metadata(self, name: str) -> tuple[ModelRecord, Mapping[str, Any]]:
        """A record with all that the file says."""
        model = await self._find(name)
        card, meta = await self._threads.run(self.registry.card, model), await self._threads.run(read_meta, model.path)
        return self._record(model, card), meta

    async def remove(self, name: str) -> None:
        """Delete the file of a model that is ours; one that is loaded is unloaded first, unless it answers."""
        model = await self._find(name)
        store.check_owned(model)
        if model.name in self._loader.loaded:
            await self.unload(model.name)
        await self._threads.run(store.remove, model, self.config)

    # Leases

    @asynccontextmanager
    async def lease(
        self, name: str, keep_s: float | None = None, *, wanted: OutputKind | None = None, any_name: bool = False
    ) -> AsyncIterator[LoadedModel]:
        """A model to answer with, loaded if need be. keep_s: how long it stays from now on when nobody uses it. wanted:
        what it must give, where the name leaves the choice to the server. any_name: a name that means no model does so,
        too, where the settings have a model for such names."""
        loaded = self._known(name, wanted, any_name) or await self._load_named(name, wanted, any_name)
        while loaded.leaving:  # it was unloaded while this request waited
            loaded = await self._load_named(name, wanted, any_name)
        if loaded.model.broken is not None:
            raise loaded.model.broken.with_traceback(None)
        async with self._loader.lease(loaded, keep_s):
            yield loaded

    def answering_name(self, name: str, loaded: LoadedModel) -> str:
        """The name that an answer has: the one that was asked for if it is one of the model's, else the model's id."""
        return name if name not in ANY and self.registry.is_meant(name, loaded.file) else loaded.id

    def _known(self, name: str, wanted: OutputKind | None, any_name: bool) -> LoadedModel | None:
        """The loaded model that a name means, where that needs no walk over the stores."""
        if name not in ANY:
            id_, until = self._names.get(name, ("", 0.0)) if name not in self._loader.loaded else (name, math.inf)
            if time.monotonic() >= until:
                return None
            if not id_ and any_name:  # no model has this name
                return self._known(self.registry.stand_in or "", wanted, any_name=False)
        else:
            id_ = self._defaults.get(wanted, "")
        loaded = self._loader.loaded.get(id_)
        return None if loaded is None or self._loader.can_reload(loaded) else loaded

    async def load(self, name: str) -> LoadedModel:
        """Load a model for whoever will use it; one that is broken, once more."""
        return await self._loader.load_idle(await self._find(name))

    async def load_by_hand(self, name: str) -> LoadedModel:
        """Load a model because somebody asks for it."""
        return await self._load_by_hand(await self._find(name))

    async def preload(self, name: str) -> LoadedModel:
        """Load a model that the server begins with: until it is there, or cannot be loaded, the server is not ready."""
        self._preloads += 1
        try:
            return await self.load(name)
        except WoollyError as error:
            self._missing[name] = error
            raise
        finally:
            self._preloads -= 1

    @property
    def missing(self) -> dict[str, WoollyError]:
        """The models that the server was to begin with and that could not be loaded, nor have been since, with why."""
        files = [loaded.file for loaded in self._loader.loaded.values()]
        return {
            name: error
            for name, error in self._missing.items()
            if not any(self.registry.is_meant(name, file) for file in files)
        }

    async def _load_by_hand(self, model: store.Model) -> LoadedModel:
        """Load a model, which then answers where no model is named, unless the settings name those that do."""
        loaded = await self._loader.load_idle(model)
        if not self.registry.is_named:
            self._by_hand = model
            self._defaults = {None: model.name}
        return loaded

    async def _load_named(self, name: str, wanted: OutputKind | None, any_name: bool) -> LoadedModel:
        try:
            model = await self._find(name, wanted)
        except NotFoundError:
            stand_in = self.registry.stand_in if any_name else None
            if stand_in is None:
                raise
            self._remember(name, "")
            return await self._load_named(stand_in, wanted, any_name=False)
        if name in ANY:
            self._defaults[wanted] = model.name
        else:
            self._remember(name, model.name)
        return await self._loader.ensure(model)

    def _remember(self, name: str, id_: str) -> None:
        """Believe for a while that a name means this model; "": none."""
        if len(self._names) >= NAMES:
            self._names.clear()
        if len(name) <= self.settings.limits.model_name:
            self._names[name] = (id_, time.monotonic() + NAMES_S)

    def _forget_unknown(self) -> None:
        """A model has been loaded: names that meant none may mean it."""
        self._names = {name: meant for name, meant in self._names.items() if meant[0]}

    async def digest(self, loaded: LoadedModel) -> str | None:
        """The digest of a loaded model's file; None if the file is another by now."""
        return await self._digests.of(loaded)

    async def load_file(self, text: str) -> LoadedModel:
        """Load by a path, which must lie in a model folder."""
        return await self._load_by_hand(await self._threads.run(self.registry.find_file, text))

    async def unload(self, name: str, *, force: bool = False) -> str:
        """Free a model; returns its id when its memory has been given back."""
        loaded = self.current if name in ANY else self._loaded_by_name(name)
        if loaded is None:
            raise NotFoundError(
                f"the model '{printable(name)}' is not loaded",
                code="model_not_found",
                model=printable(name),
                available_models=sorted(self._loader.loaded),
            )
        if loaded.leases and not force:
            raise BusyError(
                f"{loaded.id} is answering {loaded.leases} requests",
                suggestion='wait, or send {"force": true}',
                code="conflict",
            )
        await self._loader.unload(loaded)
        return loaded.id

    def _loaded_by_name(self, name: str) -> LoadedModel | None:
        """The loaded model that a name means, also where its file has gone meanwhile."""
        by_file = {loaded.file: loaded for loaded in self._loader.loaded.values()}
        try:
            return by_file[self.registry.choose(name, list(by_file))]
        except NotFoundError:
            return None

    async def close(self) -> None:
        """Free everything."""
        await self._loader.close()
        self._threads.close()

    async def _find(self, name: str, wanted: OutputKind | None = None) -> store.Model:
        if name in ANY and (loaded := self._loader.loaded.get(self._defaults.get(wanted, ""))) is not None:
            return loaded.file
        return await self._threads.run(self._find_file, name, wanted)

    def _find_file(self, name: str, wanted: OutputKind | None) -> store.Model:
        if name in ANY and self._by_hand is not None:
            with suppress(WoollyError, OSError):  # its file is gone
                if can_give(self.registry.card(self._by_hand), wanted):
                    return self._by_hand
        return self.registry.find(name, wanted)

    def _record(self, model: store.Model, card: Card) -> ModelRecord:
        return record(model, card, self.registry.aliases_of(model), loaded=model.name in self._loader.loaded)
